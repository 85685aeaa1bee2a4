// Package window measures rounds: how many end within a stretch of time, and how long each took.
//
// The program says "begin" when the stretch begins and prints its figures when it ends, so that
// whoever started it can read the broker's processor time at both ends.
package window

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const secondsMax = 60 // For all of it: a broker that says nothing must not keep us.

// Window is shared by all connections of a program.
type Window struct {
	first      sync.WaitGroup // Until every connection has ended a round.
	open, over atomic.Bool
	lock       sync.Mutex
	took       []time.Duration
}

// Times are those of one connection.
type Times struct {
	window *Window
	begin  sync.Once
	took   []time.Duration
}

// New also sets the time limit of the program.
func New() *Window {
	time.AfterFunc(secondsMax*time.Second, func() { Fail(fmt.Errorf("not done in %d s", secondsMax)) })
	return &Window{}
}

// Times returns a place for one connection's figures. All are asked for before Run.
func (w *Window) Times() *Times {
	w.first.Add(1)
	return &Times{window: w}
}

// Over tells whether to begin no more rounds.
func (w *Window) Over() bool { return w.over.Load() }

// Done notes that a round which began then has ended now, if that is within the window.
func (t *Times) Done(began time.Time) {
	t.begin.Do(t.window.first.Done)
	if t.window.open.Load() {
		t.took = append(t.took, time.Since(began))
	}
}

// Close hands the figures in. The connection has ended its last round.
func (t *Times) Close() {
	t.window.lock.Lock()
	defer t.window.lock.Unlock()
	t.window.took = append(t.window.took, t.took...)
}

// Run opens the window when all connections are at work and have been for a while, closes it
// after another, and prints the figures when all are through.
func (w *Window) Run(warmUp, length time.Duration, connections *sync.WaitGroup) {
	w.first.Wait()
	time.Sleep(warmUp)
	fmt.Println("begin")
	began := time.Now()
	w.open.Store(true)
	time.Sleep(length)
	w.open.Store(false)
	elapsed := time.Since(began)
	fmt.Println("end")
	w.over.Store(true)
	connections.Wait()
	if len(w.took) == 0 {
		Fail(fmt.Errorf("no round ended within %v", length))
	}
	slices.Sort(w.took)
	json.NewEncoder(os.Stdout).Encode(map[string]any{
		"rounds":  len(w.took),
		"seconds": elapsed.Seconds(),
		"p50_ms":  w.quantile(0.50),
		"p99_ms":  w.quantile(0.99),
	})
}

func (w *Window) quantile(share float64) float64 {
	return float64(w.took[int(share*float64(len(w.took)-1))]) / 1e6
}

// Fail ends the program: a wrong answer makes all figures worthless.
func Fail(why error) {
	fmt.Fprintln(os.Stderr, why)
	os.Exit(1)
}

// Check fails when there is an error.
func Check(why error) {
	if why != nil {
		Fail(why)
	}
}
