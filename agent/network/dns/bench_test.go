package dns

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// BenchmarkAnswers runs eight clients on the same machine, each of which sends one question at a time over UDP. It
// reports answers per second and the 99th percentile of their latency.
func BenchmarkAnswers(b *testing.B) {
	at := start(b, zone(services()))
	const clients = 8
	ask, err := new(dns.Msg).SetQuestion("web.default.svc.cluster.local.", dns.TypeA).Pack()
	if err != nil {
		b.Fatal(err)
	}
	const each = 5000
	var took []time.Duration
	var spent time.Duration
	for b.Loop() {
		times := make([][]time.Duration, clients)
		began := time.Now()
		var group sync.WaitGroup
		for i := range clients {
			group.Go(func() {
				c, err := net.Dial("udp", at)
				if err != nil {
					b.Error(err)
					return
				}
				defer c.Close()
				answer := make([]byte, dns.MinMsgSize)
				for range each {
					began := time.Now()
					if _, err := c.Write(ask); err != nil {
						b.Error(err)
						return
					}
					if _, err := c.Read(answer); err != nil {
						b.Error(err)
						return
					}
					times[i] = append(times[i], time.Since(began))
				}
			})
		}
		group.Wait()
		spent += time.Since(began)
		took = append(took, slices.Concat(times...)...)
	}
	slices.Sort(took)
	b.ReportMetric(float64(len(took))/spent.Seconds(), "answers/s")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms-p99")
}

// BenchmarkOffline queries 100 names after the node's resolver has stopped answering; at the first questions, the
// server has not detected that yet. It reports the 99th percentile and the maximum of the latency.
func BenchmarkOffline(b *testing.B) {
	var took []time.Duration
	for b.Loop() {
		var silent atomic.Bool
		up, _ := upstream(b, func(q dns.Question, m *dns.Msg) {
			if silent.Load() {
				m.Id++ // the client ignores an answer with another ID
			}
			m.Answer = append(m.Answer, record(q.Name+" 60 IN A 192.0.2.80"))
		})
		at := start(b, zone(services()), up)
		ask(b, at, "udp", "online.example.", dns.TypeA)
		silent.Store(true)
		for i := range 100 {
			began := time.Now()
			if m := ask(b, at, "udp", fmt.Sprintf("offline%d.example.", i), dns.TypeA); m.Rcode != dns.RcodeServerFailure {
				b.Errorf("offline: %v", m)
			}
			took = append(took, time.Since(began))
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms-p99")
	b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "ms-max")
}
