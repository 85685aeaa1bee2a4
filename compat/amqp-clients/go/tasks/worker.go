package tasks

import (
	"bytes"
	"fmt"
	"os"
	"time"
)

// Worker is what the versions of the worker differ in.
type Worker struct {
	AutoAck  bool // Acknowledged as soon as it is sent.
	Durable  bool // A durable queue.
	Prefetch int  // Tasks at a time; 0 means: no limit.
}

// Run takes tasks from the queue that the first argument names, for ever. Each dot in a task is
// a tenth of a second of work.
func (w Worker) Run() {
	ch, close := connect()
	defer close()
	q, err := ch.QueueDeclare(os.Args[1], w.Durable, false, false, false, nil)
	failOnError(err, "Failed to declare a queue")
	if w.Prefetch > 0 {
		err = ch.Qos(w.Prefetch, 0, false)
		failOnError(err, "Failed to set the prefetch")
	}
	msgs, err := ch.Consume(q.Name, "", w.AutoAck, false, false, false, nil)
	failOnError(err, "Failed to register a consumer")
	fmt.Println("waiting")
	for d := range msgs {
		fmt.Printf("received %s\n", d.Body)
		dots := bytes.Count(d.Body, []byte("."))
		time.Sleep(time.Duration(dots) * 100 * time.Millisecond)
		fmt.Printf("done %s\n", d.Body)
		if !w.AutoAck {
			failOnError(d.Ack(false), "Failed to acknowledge")
		}
	}
}
