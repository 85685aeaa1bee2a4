// Tutorial two: tasks for workers. Each dot in a task is a moment of work.
//
//	new_task [-durable] QUEUE TASK...
package main

import (
	"context"
	"flag"
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

func main() {
	durable := flag.Bool("durable", false, "a durable queue, persistent messages")
	flag.Parse()
	name, tasks := flag.Arg(0), flag.Args()[1:]

	conn, err := amqp.Dial(os.Getenv("AMQP_URL"))
	failOnError(err, "Failed to connect")
	defer conn.Close()
	ch, err := conn.Channel()
	failOnError(err, "Failed to open a channel")
	defer ch.Close()

	q, err := ch.QueueDeclare(name, *durable, false, false, false, nil)
	failOnError(err, "Failed to declare a queue")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, task := range tasks {
		message := amqp.Publishing{ContentType: "text/plain", Body: []byte(task)}
		if *durable {
			message.DeliveryMode = amqp.Persistent
		}
		err = ch.PublishWithContext(ctx, "", q.Name, false, false, message)
		failOnError(err, "Failed to publish a message")
		fmt.Printf("sent %s\n", task)
	}
}
