package entry

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// wire is a connection that lets go of its writes one after the other, and keeps their sizes.
type wire struct {
	net.Conn
	mu     sync.Mutex
	writes []int
}

func (w *wire) ConnectionState() tls.ConnectionState { return tls.ConnectionState{} }

func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	w.writes = append(w.writes, len(p))
	w.mu.Unlock()
	return w.Conn.Write(p)
}

func pipe() (*gathered, *wire, net.Conn) {
	here, there := net.Pipe()
	w := &wire{Conn: here}
	return gather(w, nil), w, there
}

// What is written while the client reads is sent together, in order, and no more than a limit waits.
func TestWritesAreGathered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, w, client := pipe()
		var sent bytes.Buffer
		written := 0
		go func() {
			defer g.Close()
			for i := range 1000 {
				frame := bytes.Repeat([]byte{byte(i)}, 1000)
				if _, err := g.Write(frame); err != nil {
					t.Error(err)
					return
				}
				sent.Write(frame)
				written++
			}
		}()
		synctest.Wait() // nobody reads: one write is on its way, others wait
		if most := 2*(gatheredSize/1000) + 3; written > most || written < gatheredSize/1000 {
			t.Errorf("%d writes of 1 KB returned before the client read any, want at most %d", written, most)
		}
		got, err := io.ReadAll(client)
		if err != nil || !bytes.Equal(got, sent.Bytes()) || len(got) != 1000_000 {
			t.Errorf("read %d of %d bytes, %v", len(got), sent.Len(), err)
		}
		if len(w.writes) > 40 || slices.Max(w.writes) > gatheredSize+1000 {
			t.Errorf("sent as %v", w.writes)
		}
	})
}

// A connection whose client reads no more is closed after a while, and does not keep its writers.
func TestGatheredWritesOfStalledClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _, _ := pipe()
		failed := make(chan error)
		go func() {
			for {
				if _, err := g.Write(make([]byte, 4096)); err != nil {
					failed <- err
					return
				}
			}
		}()
		synctest.Wait()
		start := time.Now()
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != lastTime {
			t.Errorf("closed after %v, want %v", took, lastTime)
		}
		if err := <-failed; err == nil || errors.Is(err, io.EOF) {
			t.Errorf("a write ended with %v", err)
		}
	})
}

// A client that is gone fails the writes that follow.
func TestGatheredWritesFail(t *testing.T) {
	t.Parallel()
	g, _, client := pipe()
	client.Close()
	for range 2 * gatheredSize {
		if _, err := g.Write([]byte("x")); err != nil {
			return
		}
	}
	if _, err := g.Write([]byte("x")); err == nil {
		t.Error("writes to a client that is gone succeed")
	}
}

// A connection that panics fails the writes that follow, and can be closed.
func TestGatheredWritesPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, w, _ := pipe()
		w.Conn = panicking{w.Conn}
		if _, err := g.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, err := g.Write([]byte("x")); err == nil || err.Error() != "panic: boom" {
			t.Errorf("the write after a panic returned %v", err)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
}

type panicking struct{ net.Conn }

func (panicking) Write([]byte) (int, error) { panic("boom") }
