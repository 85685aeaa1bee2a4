// What else the library does: confirms, returns, get, reject and dead letters, cancellation,
// a channel that is closed, headers, transactions. Each prints PASS and its name, or FAIL.
// With -list only their names.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const patience = 10 * time.Second

var ctx = context.Background()

type feature struct {
	name string
	show func(*amqp.Connection) error
}

var features = []feature{
	{"a thousand confirms", confirms},
	{"an unroutable message is returned", returned},
	{"get, and nothing to get", get},
	{"a rejected message is a dead letter", deadLetter},
	{"a consumer is told that its queue is gone", cancelled},
	{"a mistake closes the channel and not the connection", mistake},
	{"headers of every type", headers},
	{"a transaction", transaction},
	{"a body of a megabyte", large},
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "-list" {
		for _, f := range features {
			fmt.Println(f.name)
		}
		return
	}
	conn, err := amqp.Dial(os.Getenv("AMQP_URL"))
	if err != nil {
		fmt.Println("FAIL connecting:", err)
		os.Exit(1)
	}
	defer conn.Close()
	failed := 0
	for _, f := range features {
		if err := f.show(conn); err != nil {
			fmt.Printf("FAIL %s: %v\n", f.name, err)
			failed++
		} else {
			fmt.Printf("PASS %s\n", f.name)
		}
	}
	if failed > 0 {
		os.Exit(1)
	}
}

func queueOn(conn *amqp.Connection, args amqp.Table) (*amqp.Channel, string, error) {
	ch, err := conn.Channel()
	if err != nil {
		return nil, "", err
	}
	q, err := ch.QueueDeclare("", false, false, true, false, args)
	return ch, q.Name, err
}

func send(ch *amqp.Channel, queue string, message amqp.Publishing) error {
	return ch.PublishWithContext(ctx, "", queue, false, false, message)
}

func confirms(conn *amqp.Connection) error {
	ch, queue, err := queueOn(conn, nil)
	if err != nil {
		return err
	}
	if err := ch.Confirm(false); err != nil {
		return err
	}
	var waiting []*amqp.DeferredConfirmation
	for i := 0; i < 1000; i++ {
		c, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", queue, false, false,
			amqp.Publishing{Body: []byte("m"), DeliveryMode: amqp.Persistent})
		if err != nil {
			return err
		}
		waiting = append(waiting, c)
	}
	timeout, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for i, c := range waiting {
		ok, err := c.WaitContext(timeout)
		if err != nil || !ok {
			return fmt.Errorf("message %d: %v, %v", i, ok, err)
		}
	}
	count, err := ch.QueuePurge(queue, false)
	if err == nil && count != 1000 {
		err = fmt.Errorf("%d messages", count)
	}
	return err
}

func returned(conn *amqp.Connection) error {
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	back := ch.NotifyReturn(make(chan amqp.Return, 1))
	err = ch.PublishWithContext(ctx, "amq.direct", "nobody", true, false,
		amqp.Publishing{Body: []byte("m")})
	if err != nil {
		return err
	}
	select {
	case r := <-back:
		if r.ReplyCode != 312 || string(r.Body) != "m" {
			return fmt.Errorf("%v", r)
		}
		return nil
	case <-time.After(patience):
		return errors.New("nothing came back")
	}
}

func get(conn *amqp.Connection) error {
	ch, queue, err := queueOn(conn, nil)
	if err != nil {
		return err
	}
	if _, ok, err := ch.Get(queue, true); err != nil || ok {
		return fmt.Errorf("from an empty queue: %v, %v", ok, err)
	}
	if err := send(ch, queue, amqp.Publishing{Body: []byte("m")}); err != nil {
		return err
	}
	d, ok, err := ch.Get(queue, false)
	if err != nil || !ok || string(d.Body) != "m" {
		return fmt.Errorf("%v, %v, %q", ok, err, d.Body)
	}
	return d.Ack(false)
}

func deadLetter(conn *amqp.Connection) error {
	ch, graves, err := queueOn(conn, nil)
	if err != nil {
		return err
	}
	_, queue, err := queueOn(conn, amqp.Table{
		"x-dead-letter-exchange": "", "x-dead-letter-routing-key": graves,
	})
	if err != nil {
		return err
	}
	if err := send(ch, queue, amqp.Publishing{Body: []byte("m")}); err != nil {
		return err
	}
	d, ok, err := ch.Get(queue, false)
	if err != nil || !ok {
		return fmt.Errorf("%v, %v", ok, err)
	}
	if err := d.Reject(false); err != nil {
		return err
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		d, ok, err = ch.Get(graves, true)
		if err != nil {
			return err
		}
		if ok {
			death := d.Headers["x-death"].([]interface{})[0].(amqp.Table)
			if death["reason"] != "rejected" || death["queue"] != queue || death["count"] != int64(1) {
				return fmt.Errorf("%v", death)
			}
			return nil
		}
	}
	return errors.New("the grave is empty")
}

func cancelled(conn *amqp.Connection) error {
	ch, queue, err := queueOn(conn, nil)
	if err != nil {
		return err
	}
	told := ch.NotifyCancel(make(chan string, 1))
	deliveries, err := ch.Consume(queue, "mine", false, false, false, false, nil)
	if err != nil {
		return err
	}
	other, err := conn.Channel()
	if err != nil {
		return err
	}
	if _, err := other.QueueDelete(queue, false, false, false); err != nil {
		return err
	}
	select {
	case tag := <-told:
		if tag != "mine" {
			return fmt.Errorf("%q", tag)
		}
	case <-time.After(patience):
		return errors.New("nobody was told")
	}
	if _, open := <-deliveries; open {
		return errors.New("a delivery came")
	}
	return nil
}

func mistake(conn *amqp.Connection) error {
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	_, err = ch.QueueDeclarePassive("no such queue", false, false, false, false, nil)
	var told *amqp.Error
	if !errors.As(err, &told) || told.Code != 404 || !told.Server {
		return fmt.Errorf("%v", err)
	}
	if conn.IsClosed() {
		return errors.New("the connection is closed")
	}
	_, _, err = queueOn(conn, nil)
	return err
}

func headers(conn *amqp.Connection) error {
	ch, queue, err := queueOn(conn, nil)
	if err != nil {
		return err
	}
	sent := amqp.Table{
		"bool": true, "byte": byte(200), "int16": int16(-3), "int32": int32(-70000),
		"int64": int64(1) << 40, "float32": float32(1.5), "float64": 2.25, "text": "grüße",
		"bytes": []byte{0, 255}, "none": nil, "time": time.Unix(1600000000, 0),
		"decimal": amqp.Decimal{Scale: 2, Value: 125},
		"list":    []interface{}{int32(1), "two", amqp.Table{"three": int32(3)}},
		"table":   amqp.Table{"in": amqp.Table{"side": "it"}},
	}
	message := amqp.Publishing{Headers: sent, Body: []byte("m"), Priority: 3, MessageId: "id",
		Timestamp: time.Unix(1600000001, 0), Type: "t", AppId: "a", CorrelationId: "c"}
	if err := send(ch, queue, message); err != nil {
		return err
	}
	d, ok, err := ch.Get(queue, true)
	if err != nil || !ok {
		return fmt.Errorf("%v, %v", ok, err)
	}
	for name, value := range sent {
		if !reflect.DeepEqual(d.Headers[name], value) {
			return fmt.Errorf("%s: %#v, and here %#v", name, value, d.Headers[name])
		}
	}
	if d.Priority != 3 || d.MessageId != "id" || d.Type != "t" || d.AppId != "a" ||
		d.CorrelationId != "c" || !d.Timestamp.Equal(message.Timestamp) {
		return fmt.Errorf("%+v", d)
	}
	return nil
}

func transaction(conn *amqp.Connection) error {
	ch, queue, err := queueOn(conn, nil)
	if err != nil {
		return err
	}
	if err := ch.Tx(); err != nil {
		return err
	}
	for i, end := range []func() error{ch.TxRollback, ch.TxCommit} {
		if err := send(ch, queue, amqp.Publishing{Body: []byte("m")}); err != nil {
			return err
		}
		if err := end(); err != nil {
			return err
		}
		q, err := ch.QueueDeclarePassive(queue, false, false, true, false, nil)
		if err != nil || q.Messages != i {
			return fmt.Errorf("%d messages, %v", q.Messages, err)
		}
	}
	return nil
}

func large(conn *amqp.Connection) error {
	ch, queue, err := queueOn(conn, nil)
	if err != nil {
		return err
	}
	body := make([]byte, 1<<20)
	for i := range body {
		body[i] = byte(i * 7)
	}
	if err := send(ch, queue, amqp.Publishing{Body: body}); err != nil {
		return err
	}
	d, ok, err := ch.Get(queue, true)
	if err != nil || !ok || !reflect.DeepEqual(d.Body, body) {
		return fmt.Errorf("%v, %v, %d bytes", ok, err, len(d.Body))
	}
	return nil
}
