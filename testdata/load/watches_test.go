package load_test

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"monopod/testdata/harness"
)

const (
	// watchedPods is the number of pods that are updated in turn.
	watchedPods = 50
	// patience is how long wait waits for the next event.
	patience = 10 * time.Second
	// mark precedes the number of an update in a pod's message.
	mark = "update "
)

// watches updates pods 50 times a second for ten seconds, while a number of watches receive every update.
func (t *target) watches(b *testing.B, watchers int) {
	const pace, updates = 50, 500
	ns := t.namespace(b, fmt.Sprintf("watched-%d", watchers))
	path := ns + "/pods"
	if err := each(16, watchedPods, func(i int) error {
		return t.do(request{method: http.MethodPost, path: path, body: podBody(number(i))})
	}); err != nil {
		b.Fatal(err)
	}
	b.Run(fmt.Sprintf("%d-watches", watchers), func(b *testing.B) {
		harness.Once(b, func(b *testing.B) {
			t.rest(b)
			w := &watches{sent: make([]atomic.Int64, updates), took: make([][]time.Duration, watchers)}
			defer w.end()
			watch := path + "?watch=1&resourceVersion=" + t.Revision()
			if err := each(32, watchers, func(i int) error { return w.open(t.http, t.url, watch, i) }); err != nil {
				b.Fatal(err)
			}
			t.rest(b)
			cpu, from := t.CPU(b), time.Now()
			if err := w.update(t, path, pace); err != nil {
				b.Fatal(err)
			}
			lost := w.wait(int64(watchers * updates))
			used := t.CPU(b) - cpu
			w.end()
			if lost > 0 {
				b.Logf("%d of %d events are missing", lost, watchers*updates)
			}
			b.ReportMetric(used.Seconds()/time.Unix(0, w.last.Load()).Sub(from).Seconds(), "cores")
			if took := slices.Concat(w.took...); len(took) > 0 {
				report(b, took)
			}
		})
	})
}

// watches are concurrent watches of the same pods.
type watches struct {
	sent       []atomic.Int64    // when each update was sent, in ns since 1970
	took       [][]time.Duration // by watch: the times from sending an update to its event
	came, last atomic.Int64      // number of received events, and time of the last one in ns since 1970
	bodies     []io.Closer
	mu         sync.Mutex // guards bodies
	readers    sync.WaitGroup
}

// open opens the i-th watch.
func (w *watches) open(client *http.Client, url, path string, i int) error {
	resp, err := request{method: http.MethodGet, path: path}.open(client, url)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.bodies = append(w.bodies, resp.Body)
	w.mu.Unlock()
	w.readers.Go(func() { w.read(resp.Body, i) })
	return nil
}

// read reads the i-th watch to its end. Each event is a line with the number of its update.
func (w *watches) read(body io.Reader, i int) {
	for in := bufio.NewReaderSize(body, 16<<10); ; {
		line, err := in.ReadSlice('\n')
		if _, rest, found := bytes.Cut(line, []byte(mark)); found {
			digits, _, _ := bytes.Cut(rest, []byte{' '})
			if n, bad := strconv.Atoi(string(digits)); bad == nil {
				now := time.Now().UnixNano()
				w.took[i] = append(w.took[i], time.Duration(now-w.sent[n].Load()))
				w.last.Store(now)
				w.came.Add(1)
			}
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// update sends the updates at the given pace per second, without waiting for earlier responses.
func (w *watches) update(t *target, path string, pace int) error {
	failed := make([]error, len(w.sent))
	var group sync.WaitGroup
	for from, n := time.Now(), 0; n < len(w.sent); n++ {
		time.Sleep(time.Until(from.Add(time.Duration(n) * time.Second / time.Duration(pace))))
		group.Go(func() {
			w.sent[n].Store(time.Now().UnixNano())
			failed[n] = t.do(
				request{method: http.MethodPatch, path: path + "/" + number(n%watchedPods) + "/status",
					body: fmt.Sprintf(`{"status":{"message":"%s%d "}}`, mark, n)})
		})
	}
	group.Wait()
	return cmp.Or(failed...)
}

// wait waits for all events, and returns the number of missing ones.
func (w *watches) wait(all int64) (lost int64) {
	for seen, since := int64(0), time.Now(); ; time.Sleep(5 * time.Millisecond) {
		came := w.came.Load()
		if came != seen {
			seen, since = came, time.Now()
		}
		if came >= all || time.Since(since) > patience {
			return all - came
		}
	}
}

// end closes the watches and waits for their readers.
func (w *watches) end() {
	w.mu.Lock()
	for _, b := range w.bodies {
		b.Close()
	}
	w.bodies = nil
	w.mu.Unlock()
	w.readers.Wait()
}
