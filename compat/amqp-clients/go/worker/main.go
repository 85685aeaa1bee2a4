// Tutorial two: a worker, in the versions of the lectures.
//
//	worker [-auto-ack] [-durable] [-prefetch N] QUEUE
//
// Automatic acknowledgement, explicit acknowledgement, a durable queue, and at most N tasks at
// a time. A dot is a tenth of a second of work.
package main

import (
	"bytes"
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
	autoAck := flag.Bool("auto-ack", false, "acknowledged as soon as it is sent")
	durable := flag.Bool("durable", false, "a durable queue")
	prefetch := flag.Int("prefetch", 0, "tasks at a time")
	flag.Parse()

	conn, err := amqp.Dial(os.Getenv("AMQP_URL"))
	failOnError(err, "Failed to connect")
	defer conn.Close()
	ch, err := conn.Channel()
	failOnError(err, "Failed to open a channel")
	defer ch.Close()

	q, err := ch.QueueDeclare(flag.Arg(0), *durable, false, false, false, nil)
	failOnError(err, "Failed to declare a queue")
	if *prefetch > 0 {
		err = ch.Qos(*prefetch, 0, false)
		failOnError(err, "Failed to set the prefetch")
	}
	msgs, err := ch.Consume(q.Name, "", *autoAck, false, false, false, nil)
	failOnError(err, "Failed to register a consumer")
	fmt.Println("waiting")
	for d := range msgs {
		fmt.Printf("received %s\n", d.Body)
		dots := bytes.Count(d.Body, []byte("."))
		time.Sleep(time.Duration(dots) * 100 * time.Millisecond)
		fmt.Printf("done %s\n", d.Body)
		if !*autoAck {
			failOnError(d.Ack(false), "Failed to acknowledge")
		}
	}
}
