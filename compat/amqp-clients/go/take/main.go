// take QUEUE: takes one message of the queue, and prints it.
package main

import (
	"fmt"
	"log"
	"os"

	amqp "github.com/rabbitmq/amqp091-go"
)

func failOnError(err error, msg string) {
	if err != nil {
		log.Fatalf("%s: %s", msg, err)
	}
}

func main() {
	conn, err := amqp.Dial(os.Getenv("AMQP_URL"))
	failOnError(err, "Failed to connect")
	defer conn.Close()
	ch, err := conn.Channel()
	failOnError(err, "Failed to open a channel")
	defer ch.Close()
	d, ok, err := ch.Get(os.Args[1], false)
	failOnError(err, "Failed to get a message")
	if !ok {
		log.Fatal("There is none")
	}
	failOnError(d.Ack(false), "Failed to acknowledge")
	fmt.Println(string(d.Body))
}
