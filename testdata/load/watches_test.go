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
	"time"

	"monopod/testdata/harness"
)

const (
	// watchedPods are updated in turn.
	watchedPods = 50
	// patience is how long no event may come before the round ends without the rest.
	patience = 10 * time.Second
	// mark begins the number of an update in an event.
	mark = "update "
)

// fanOut updates pods so many times, pace times a second, while n watches receive each of the updates.
func fanOut(n, pace, updates int) func(*target) (sample, error) {
	return func(t *target) (sample, error) {
		path, revision, err := t.watchable()
		if err != nil {
			return sample{}, err
		}
		t.round++
		w := &watches{round: t.round, sent: make([]atomic.Int64, updates), took: make([][]time.Duration, n)}
		clients, _ := t.Clients(t.b, 1)
		defer w.end()
		if err := each(32, n, func(i int) error { return w.open(clients[0], t.url, path+"?watch=1&resourceVersion="+revision, i) }); err != nil {
			return sample{}, err
		}
		t.rest()
		cpu, from := t.CPU(t.b), time.Now()
		if err := w.update(t, path, pace); err != nil {
			return sample{}, err
		}
		lost := w.wait(int64(n * updates))
		used := t.CPU(t.b) - cpu
		took := time.Unix(0, w.last.Load()).Sub(from)
		w.end()
		s := sample{n: int(w.came.Load()), took: took, cpu: used, figures: map[string]float64{"cores": used.Seconds() / took.Seconds(), "ms-p99": w.p99()}}
		if lost > 0 {
			return s, fmt.Errorf("%d of %d events have not come", lost, n*updates)
		}
		return s, nil
	}
}

// watchable makes the pods that are watched, and returns their path and revision.
func (t *target) watchable() (path, revision string, err error) {
	ns, err := t.namespace("watched")
	if err != nil {
		return "", "", err
	}
	path = ns + "/pods"
	err = t.once("watched", func() error {
		return each(16, watchedPods, func(i int) error {
			return t.do(request{method: http.MethodPost, path: path, body: podBody(number(i), "watched")})
		})
	})
	m, readErr := t.read(request{method: http.MethodGet, path: path + "?limit=1"})
	return path, m.ResourceVersion, errors.Join(err, readErr)
}

// watches are the clients of one fan-out.
type watches struct {
	round      int
	sent       []atomic.Int64    // when each update was sent, in ns since 1970
	took       [][]time.Duration // of each watch, from an update's sending to its event
	came, last atomic.Int64      // how many events have come, and when the last one came
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

// read reads a watch to its end: each event is a line with its update's number.
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

// update sends the updates, each when it is due, whether or not those before are answered: so the last one of a round is any of them, and
// the same text in the next round may change nothing.
func (w *watches) update(t *target, path string, pace int) error {
	failed := make([]error, len(w.sent))
	var group sync.WaitGroup
	for from, n := time.Now(), 0; n < len(w.sent); n++ {
		time.Sleep(time.Until(from.Add(time.Duration(n) * time.Second / time.Duration(pace))))
		group.Go(func() {
			w.sent[n].Store(time.Now().UnixNano())
			failed[n] = t.do(request{method: http.MethodPatch, path: path + "/" + number(n%watchedPods) + "/status", body: fmt.Sprintf(`{"status":{"message":"%s%d of round %d"}}`, mark, n, w.round)})
		})
	}
	group.Wait()
	return cmp.Or(failed...)
}

// wait waits for all events, and returns how many have not come.
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

// end closes the watches.
func (w *watches) end() {
	w.mu.Lock()
	for _, b := range w.bodies {
		b.Close()
	}
	w.bodies = nil
	w.mu.Unlock()
	w.readers.Wait()
}

// p99 is that of the events' times, in ms.
func (w *watches) p99() float64 {
	took := slices.Concat(w.took...)
	slices.Sort(took)
	if len(took) == 0 {
		return 0
	}
	return float64(took[len(took)*99/100].Microseconds()) / 1000
}

// idleWatches measures the memory of watches of a namespace's ConfigMaps that receive nothing, half a minute after they were opened.
func idleWatches(n, connections int) func(*target) (sample, error) {
	return func(t *target) (sample, error) {
		time.Sleep(time.Until(t.since.Add(settled)))
		m, err := t.read(request{method: http.MethodGet, path: "/api/v1/namespaces/default/configmaps?limit=1"})
		if err != nil {
			return sample{}, err
		}
		anonymous := t.anonymous()
		live, _ := t.live()
		w := &watches{took: make([][]time.Duration, n)}
		defer w.end()
		clients, _ := t.Clients(t.b, connections)
		path := "/api/v1/namespaces/default/configmaps?watch=1&allowWatchBookmarks=true&timeoutSeconds=3600&resourceVersion=" + m.ResourceVersion
		if err := each(connections, n, func(i int) error { return w.open(clients[i%connections], t.url, path, i) }); err != nil {
			return sample{}, err
		}
		time.Sleep(30 * time.Second)
		figures := map[string]float64{"KB-anonymous": (t.anonymous() - anonymous) / float64(n)}
		if more, known := t.live(); known {
			figures["KB-live"] = (more - live) / 1024 / float64(n)
		}
		return sample{figures: figures}, nil
	}
}

// live is the server's live memory with stacks, in bytes, which the program of the commit before does not tell.
func (t *target) live() (bytes float64, known bool) {
	if code, _ := t.Get("/debug/pprof/heap?gc=1"); code != http.StatusOK {
		return 0, false
	}
	bytes, _ = t.Cost(t.b)
	return bytes, true
}

// anonymous is the server's anonymous memory, in KB.
func (t *target) anonymous() float64 {
	return float64(harness.ProcNumber(t.b, t.Cmd.Process.Pid, "smaps_rollup", "Anonymous:"))
}
