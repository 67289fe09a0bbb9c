package web_test

import (
	"os"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/prometheus/procfs"
)

// An open page costs the server at most 0.5 % of a core, 3 MB of its own and 3 MB of pages of its program, which the
// system can take back, and 3 MB after it was closed. It takes minutes and needs an otherwise idle server, so it only
// runs with MONOPOD_IDLE_PAGE=1.
func TestIdlePage(t *testing.T) {
	if os.Getenv("MONOPOD_IDLE_PAGE") == "" {
		t.Skip("only with MONOPOD_IDLE_PAGE=1")
	}
	b := newBox(t)
	p := open(t, b.address)
	p.enter(b.token)
	p.apply(workload, "Deployment web")
	p.sees(`%s === "2/2 ready"`, text(".state"))
	p.do(chromedp.Navigate("about:blank"))
	before := b.idle(t, "closed")
	p.load(b.address)
	for _, hash := range []string{"#/", "#/pods", "#/deployments.apps/default/web", "#/nodes/-/greenhouse-01"} {
		p.visit(hash)
		p.sees(`%s === "Live"`, text("#link-text"))
		with := b.idle(t, hash)
		if with.cpu-before.cpu > 0.5 || with.own-before.own > 3<<20 || with.rss-before.rss > 6<<20 {
			t.Errorf("%s: %.2f %% of a core more than %.2f %%, %.1f MB more than %.1f MB", hash, with.cpu-before.cpu, before.cpu,
				mb(with.rss-before.rss), mb(before.rss))
		}
	}
	p.do(chromedp.Navigate("about:blank"))
	if after := b.idle(t, "closed again"); after.rss-before.rss > 3<<20 {
		t.Errorf("closed again: %.1f MB more than %.1f MB", mb(after.rss-before.rss), mb(before.rss))
	}
	p.clean()
}

func mb(n int) float64 { return float64(n) / (1 << 20) }

// cost is the CPU time and the memory of a process in an idle minute.
type cost struct {
	cpu float64 // % of a core
	// bytes, on average: the server releases the pages of its program once a minute, and loads the used ones again
	rss int
	own int // bytes of rss without pages of files
}

// idle measures the server for a minute, after a pause in which it returns memory to the system.
func (b *box) idle(t *testing.T, what string) cost {
	t.Helper()
	time.Sleep(75 * time.Second)
	proc, err := procfs.NewProc(b.Cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	stat := func() procfs.ProcStat {
		t.Helper()
		s, err := proc.Stat()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	began, from := time.Now(), stat()
	now, rss, n := from, 0, 0
	for ; time.Since(began) < time.Minute; n++ {
		time.Sleep(time.Second)
		now = stat()
		rss += now.ResidentMemory()
	}
	status, err := proc.NewStatus()
	if err != nil {
		t.Fatal(err)
	}
	c := cost{cpu: 100 * (now.CPUTime() - from.CPUTime()) / time.Since(began).Seconds(), rss: rss / n,
		own: int(status.RssAnon)}
	t.Logf("%s: %.2f %% of a core, %.1f MB RSS, %.1f MB of it without files", what, c.cpu, mb(c.rss), mb(c.own))
	return c
}
