package proxy

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

type fake struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (f *fake) Accept() (net.Conn, error) {
	select {
	case c := <-f.conns:
		return c, nil
	case <-f.closed:
		return nil, net.ErrClosed
	}
}
func (f *fake) Close() error   { close(f.closed); return nil }
func (f *fake) Addr() net.Addr { return &net.TCPAddr{} }

func TestListener(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{make(chan net.Conn), make(chan struct{})}
		open := prometheus.NewGauge(prometheus.GaugeOpts{Name: "x"})
		l := newLimitedListener(f, 5, 3, open)
		accepted, done := make(chan net.Conn, 10), make(chan error)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					done <- err
					return
				}
				accepted <- c
			}
		}()
		for range 5 { // from one address
			ours, _ := net.Pipe()
			f.conns <- ours
		}
		synctest.Wait()
		var m dto.Metric
		if err := open.Write(&m); err != nil || len(accepted) != 3 || m.GetGauge().GetValue() != 3 {
			t.Errorf("accepted %d connections of one client, gauge %v, error %v; want 3", len(accepted), m.GetGauge(), err)
		}
		l.mu.Lock()
		l.open = 5 // including connections of other clients
		l.mu.Unlock()
		(<-accepted).Close()
		synctest.Wait()
		ours, _ := net.Pipe()
		f.conns <- ours
		synctest.Wait()
		if len(accepted) != 3 {
			t.Error("no connection was accepted after another one closed")
		}
		for len(accepted) > 0 {
			c := <-accepted
			c.Close()
			c.Close() // must have no effect
		}
		if l.open != 2 || len(l.byClient) != 0 {
			t.Errorf("%d connections are open, by client %v", l.open, l.byClient)
		}
		l.Close()
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}

func TestClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		began := time.Now()
		if _, err := (&limitedConn{Conn: ours, release: func() {}}).Write([]byte("x")); !errors.Is(err,
			os.ErrDeadlineExceeded) ||
			time.Since(began) != writeStall {
			t.Errorf("Write returned %v after %v", err, time.Since(began))
		}
	})
}
