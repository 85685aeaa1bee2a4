// Many connections that each publish one message at a time with QoS 1, on a topic of their own and
// each with a payload of its own, and one more that has subscribed to all of them. A round is over
// when a message is both acknowledged and with the subscriber. Bare sockets, MQTT 3.1.1.
package main

import (
	"bufio"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"entrepot/bench/window"
)

var (
	broker      = flag.String("broker", "", "host and port")
	connections = flag.Int("connections", 1, "how many")
	qos         = flag.Int("subscriber-qos", 0, "what the subscriber asks for")
	warmUp      = flag.Duration("warm-up", time.Second, "before measuring")
	length      = flag.Duration("length", 2*time.Second, "of measuring")
)

const (
	connack, publish, puback, suback = 2, 3, 4, 9
	topicPrefix                      = "devices/"
)

// peer is one connection.
type peer struct {
	socket net.Conn
	reader *bufio.Reader
	topic  string
	mine   chan uint64 // Numbers of its messages that the subscriber has.
}

func connect(name string) (*peer, error) {
	socket, err := net.Dial("tcp", *broker)
	if err != nil {
		return nil, err
	}
	p := &peer{socket: socket, reader: bufio.NewReader(socket), mine: make(chan uint64, 1)}
	body := append(text(nil, "MQTT"), 4, 2, 0, 0) // Version 3.1.1, a clean session, no keep-alive.
	if _, err = socket.Write(packet(1<<4, text(body, name))); err != nil {
		return nil, err
	}
	kind, answer, err := p.read()
	if err == nil && (kind>>4 != connack || answer[1] != 0) {
		err = fmt.Errorf("refused: %x %x", kind, answer)
	}
	return p, err
}

func (p *peer) subscribe(filter string) error {
	body := append(text([]byte{0, 1}, filter), byte(*qos))
	if _, err := p.socket.Write(packet(8<<4|2, body)); err != nil {
		return err
	}
	kind, answer, err := p.read()
	if err == nil && (kind>>4 != suback || int(answer[2]) != *qos) {
		err = fmt.Errorf("no subscription: %x %x", kind, answer)
	}
	return err
}

// read returns the next packet: its first byte, and what follows the length.
func (p *peer) read() (byte, []byte, error) {
	kind, err := p.reader.ReadByte()
	if err != nil {
		return 0, nil, err
	}
	size, err := binary.ReadUvarint(p.reader)
	if err != nil {
		return 0, nil, err
	}
	body := make([]byte, size)
	_, err = io.ReadFull(p.reader, body)
	return kind, body, err
}

// payload returns that of a message, which has nothing in common with the one before.
func (p *peer) payload(number uint64) string {
	return fmt.Sprintf(`{"number":%d,"device":"%s","value":%d}`, number, p.topic, number*7919)
}

// run publishes one message after the other.
func (p *peer) run(w *window.Window, times *window.Times) error {
	defer times.Close()
	for number := uint64(1); !w.Over(); number++ {
		began := time.Now()
		id := uint16(number%65535 + 1)
		body := binary.BigEndian.AppendUint16(text(nil, p.topic), id)
		body = append(body, p.payload(number)...)
		if _, err := p.socket.Write(packet(publish<<4|2, body)); err != nil {
			return err
		}
		kind, answer, err := p.read()
		if err != nil {
			return err
		}
		if kind != puback<<4 || len(answer) != 2 || binary.BigEndian.Uint16(answer) != id {
			return fmt.Errorf("%x %x answers message %d", kind, answer, id)
		}
		if got := <-p.mine; got != number {
			return fmt.Errorf("the subscriber got message %d of %s after %d", got, p.topic, number-1)
		}
		times.Done(began)
	}
	return nil
}

// hear takes what the subscriber gets, checks it, and tells whose it is.
func (p *peer) hear(peers []*peer) error {
	for {
		kind, body, err := p.read()
		if err != nil {
			return err
		}
		if kind>>4 != publish {
			return fmt.Errorf("the subscriber got %x %x", kind, body)
		}
		end := 2 + int(binary.BigEndian.Uint16(body))
		topic := string(body[2:end])
		if quality := kind >> 1 & 3; quality > 0 {
			answer := append([]byte{puback << 4, 2}, body[end:end+2]...)
			if _, err := p.socket.Write(answer); err != nil {
				return err
			}
			end += 2
		}
		index, err := strconv.Atoi(strings.TrimPrefix(topic, topicPrefix))
		if err != nil || index >= len(peers) {
			return fmt.Errorf("a message on %q", topic)
		}
		digits, _, _ := strings.Cut(strings.TrimPrefix(string(body[end:]), `{"number":`), ",")
		number, err := strconv.ParseUint(digits, 10, 64)
		if err != nil {
			return err
		}
		if want := peers[index].payload(number); want != string(body[end:]) {
			return fmt.Errorf("expected %s, got %s", want, body[end:])
		}
		peers[index].mine <- number
	}
}

func packet(first byte, body []byte) []byte {
	data := binary.AppendUvarint([]byte{first}, uint64(len(body)))
	return append(data, body...)
}

func text(data []byte, value string) []byte {
	return append(binary.BigEndian.AppendUint16(data, uint16(len(value))), value...)
}

func main() {
	flag.Parse()
	w := window.New()
	stamp := time.Now().UnixNano()
	peers := make([]*peer, *connections)
	for i := range peers {
		var err error
		peers[i], err = connect(fmt.Sprintf("device-%d-%d", stamp, i))
		window.Check(err)
		peers[i].topic = topicPrefix + strconv.Itoa(i)
	}
	subscriber, err := connect(fmt.Sprintf("subscriber-%d", stamp))
	window.Check(err)
	window.Check(subscriber.subscribe(topicPrefix + "#"))
	go func() { window.Check(subscriber.hear(peers)) }()
	var waiting sync.WaitGroup
	for _, each := range peers {
		times := w.Times()
		waiting.Go(func() { window.Check(each.run(w, times)) })
	}
	w.Run(*warmUp, *length, &waiting)
}
