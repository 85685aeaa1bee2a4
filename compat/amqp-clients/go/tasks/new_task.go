// Package tasks is tutorial two, in the versions of the lectures: a program that publishes tasks
// and workers that do them. Each version is a program of its own beside this directory.
package tasks

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func failOnError(err error, msg string) {
	if err != nil {
		log.Fatalf("%s: %s", msg, err)
	}
}

// connect opens a channel; close ends its connection too.
func connect() (ch *amqp.Channel, close func()) {
	conn, err := amqp.Dial(os.Getenv("AMQP_URL"))
	failOnError(err, "Failed to connect")
	ch, err = conn.Channel()
	failOnError(err, "Failed to open a channel")
	return ch, func() { ch.Close(); conn.Close() }
}

// Publish sends the arguments as tasks: QUEUE TASK... Durable is a durable queue and persistent
// messages.
func Publish(durable bool) {
	name, tasks := os.Args[1], os.Args[2:]
	ch, close := connect()
	defer close()
	q, err := ch.QueueDeclare(name, durable, false, false, false, nil)
	failOnError(err, "Failed to declare a queue")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, task := range tasks {
		message := amqp.Publishing{ContentType: "text/plain", Body: []byte(task)}
		if durable {
			message.DeliveryMode = amqp.Persistent
		}
		err = ch.PublishWithContext(ctx, "", q.Name, false, false, message)
		failOnError(err, "Failed to publish a message")
		fmt.Printf("sent %s\n", task)
	}
}
