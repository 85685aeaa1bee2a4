// Many connections, each with a queue of its own, into which it publishes with confirms and from
// which it consumes with acknowledgements. A round is over when a message is confirmed and here.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"sync"
	"time"

	"entrepot/bench/window"

	amqp "github.com/rabbitmq/amqp091-go"
)

const prefetch = 200

var (
	url         = flag.String("url", "", "of the broker")
	connections = flag.Int("connections", 1, "how many")
	inFlight    = flag.Int("in-flight", 1, "rounds of a connection at a time")
	durable     = flag.Bool("durable", false, "durable queues and persistent messages")
	warmUp      = flag.Duration("warm-up", time.Second, "before measuring")
	length      = flag.Duration("length", 2*time.Second, "of measuring")
)

// peer is one connection, with a channel for each direction.
type peer struct {
	name          string
	connection    *amqp.Connection
	publishing    *amqp.Channel
	consuming     *amqp.Channel
	confirmations chan amqp.Confirmation
	deliveries    <-chan amqp.Delivery
}

func connect(number int) (*peer, error) {
	p := &peer{name: fmt.Sprintf("single-%d-%d", time.Now().UnixNano(), number)}
	var err error
	if p.connection, err = amqp.Dial(*url); err != nil {
		return nil, err
	}
	if p.publishing, err = p.connection.Channel(); err != nil {
		return nil, err
	}
	if p.consuming, err = p.connection.Channel(); err != nil {
		return nil, err
	}
	if _, err = p.publishing.QueueDeclare(p.name, *durable, false, false, false, nil); err != nil {
		return nil, err
	}
	if err = p.publishing.Confirm(false); err != nil {
		return nil, err
	}
	p.confirmations = p.publishing.NotifyPublish(make(chan amqp.Confirmation, *inFlight))
	if err = p.consuming.Qos(prefetch, 0, false); err != nil {
		return nil, err
	}
	p.deliveries, err = p.consuming.Consume(p.name, "", false, false, false, false, nil)
	return p, err
}

// message returns the one with that number, which has nothing in common with the one before.
func (p *peer) message(number uint64, now time.Time) amqp.Publishing {
	name := fmt.Sprintf("%s-%d", p.name, number)
	mode := amqp.Transient
	if *durable {
		mode = amqp.Persistent
	}
	return amqp.Publishing{
		ContentType:   "application/json",
		DeliveryMode:  mode,
		MessageId:     name,
		CorrelationId: fmt.Sprintf("request-%d", number*7919),
		Timestamp:     now,
		Headers:       amqp.Table{"trace": "00-" + name, "attempt": int32(number), "sent": now.UnixNano()},
		Body:          []byte(fmt.Sprintf(`{"order":%d,"customer":"%s","at":%d}`, number, name, now.UnixNano())),
	}
}

// run keeps as many rounds going as it may. Confirmations and deliveries each come in order.
func (p *peer) run(w *window.Window, times *window.Times) error {
	defer times.Close()
	began := make([]time.Time, *inFlight)
	var sent, confirmed, delivered, done uint64
	for {
		for ; sent-done < uint64(*inFlight) && !w.Over(); sent++ {
			now := time.Now()
			began[sent%uint64(*inFlight)] = now
			err := p.publishing.PublishWithContext(
				context.Background(), "", p.name, false, false, p.message(sent, now))
			if err != nil {
				return err
			}
		}
		if done == sent {
			return p.leave()
		}
		select {
		case confirmation := <-p.confirmations:
			if !confirmation.Ack || confirmation.DeliveryTag != confirmed+1 {
				return fmt.Errorf("confirmed %v after %d", confirmation, confirmed)
			}
			confirmed++
		case delivery := <-p.deliveries:
			if err := p.take(delivery, delivered); err != nil {
				return err
			}
			delivered++
		}
		for ; done < min(confirmed, delivered); done++ {
			times.Done(began[done%uint64(*inFlight)])
		}
	}
}

func (p *peer) take(delivery amqp.Delivery, number uint64) error {
	name := fmt.Sprintf("%s-%d", p.name, number)
	body := fmt.Sprintf(`{"order":%d,"customer":"%s",`, number, name)
	if delivery.MessageId != name || !strings.HasPrefix(string(delivery.Body), body) {
		return fmt.Errorf("expected %s, got %q: %s", name, delivery.MessageId, delivery.Body)
	}
	return delivery.Ack(false)
}

// leave fails if an acknowledgement was lost: the message would be back when its consumer is gone.
func (p *peer) leave() error {
	if err := p.consuming.Close(); err != nil {
		return err
	}
	left, err := p.publishing.QueueDelete(p.name, false, false, false)
	if err == nil && left != 0 {
		err = fmt.Errorf("%d messages are left in %s", left, p.name)
	}
	return errors.Join(err, p.connection.Close())
}

func main() {
	flag.Parse()
	w := window.New()
	ready := make([]*peer, *connections)
	for i := range ready {
		var err error
		ready[i], err = connect(i)
		window.Check(err)
	}
	var waiting sync.WaitGroup
	for _, each := range ready {
		times := w.Times()
		waiting.Go(func() { window.Check(each.run(w, times)) })
	}
	w.Run(*warmUp, *length, &waiting)
}
