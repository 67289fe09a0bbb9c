package agent

import (
	"context"

	"go.uber.org/zap"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/runtime"
	"monopod/agent/runtime/inventory"
)

// lists are what the loop asked the runtime for, which may take its time to answer.
type lists struct {
	connected chan (<-chan runtime.Event)
	answer    chan list

	asked bool // belongs to the loop: an answer is to come
	again bool // likewise: it may be out of date when it comes
}

// list is all that the runtime holds of our pods.
type list struct {
	sandboxes  []*cri.PodSandbox
	containers []*cri.Container
	err        error
}

func newLists() lists {
	return lists{connected: make(chan (<-chan runtime.Event)), answer: make(chan list)}
}

// reconnect has the loop hear of events again, once the runtime answers.
func (a *Agent) reconnect(ctx context.Context) {
	a.pleg.Streaming(false)
	a.guard.Go(&a.beside, "events", func() {
		a.guard.Keep(ctx, a.Clock, "events", func() {
			events, ok := a.connect(ctx)
			if !ok {
				return
			}
			select {
			case <-ctx.Done():
			case a.lists.connected <- events:
			}
		})
	})
}

// relist asks what the runtime has; the loop goes on meanwhile.
func (a *Agent) relist(ctx context.Context) {
	if a.lists.asked {
		a.lists.again = true
		return
	}
	a.lists.asked, a.lists.again = true, false
	a.guard.Go(&a.beside, "relist", func() {
		var l list
		l.err = a.guard.Call("relist", func() (err error) {
			l.sandboxes, l.containers, err = a.askRuntime(ctx)
			return err
		})
		select {
		case <-ctx.Done():
		case a.lists.answer <- l:
		}
	})
}

// listed takes the answer.
func (a *Agent) listed(ctx context.Context, l list) {
	a.lists.asked = false
	if l.err != nil {
		a.log.Warn("cannot list the pods of the runtime", zap.Error(l.err))
	} else {
		a.compare(ctx, inventory.ByPod(l.sandboxes, l.containers))
	}
	if a.lists.again {
		a.relist(ctx)
	}
}
