package follow

import (
	"context"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/client"
)

// Dormant is a Controller that has nothing to do before there is an object of one of these resources, and that the manager does not run
// before.
type Dormant interface {
	Controller
	Until() []schema.GroupVersionResource
}

// Asked is a Dormant that an object of a resource which others use, too, can need.
type Asked interface {
	Dormant
	// Asks selects objects, and reports whether one of them needs the controller.
	Asks() (sel client.Selector, asks func(obj client.Object) bool)
}

// Sleeps returns channels of which one is closed when the controller has something to do; nil: it has, or that is not known. It spawns
// what looks for objects that need the controller, until ctx ends.
func (s *Supervisor) Sleeps(ctx context.Context, spawn func(func())) []<-chan struct{} {
	d, ok := s.ctrl.(Dormant)
	if !ok {
		return nil
	}
	var all []<-chan struct{}
	for _, kind := range d.Until() {
		appeared := first(s.deps.Client, kind)
		if appeared == nil {
			return nil
		}
		all = append(all, appeared)
	}
	if a, ok := d.(Asked); ok {
		direct, ok := s.deps.Client.(client.Direct)
		if !ok {
			return nil
		}
		asked := make(chan struct{})
		spawn(func() { ask(ctx, direct, a, asked) })
		all = append(all, asked)
	}
	return all
}

// ask closes asked when an object needs the controller, or if that cannot be known.
func ask(parent context.Context, from client.Direct, a Asked, asked chan<- struct{}) {
	ctx, stop := context.WithCancel(parent)
	defer stop()
	sel, asks := a.Asks()
	see := func(obj client.Object) {
		if obj != nil && asks(obj) {
			stop()
		}
	}
	run, err := from.Follow(ctx, sel, client.Reader{
		List: func(objs []client.Object, _ string) {
			for _, obj := range objs {
				see(obj)
			}
		},
		Change:  func(_, obj client.Object) { see(obj) },
		Reached: func(string) {},
	})
	if err == nil { // otherwise it is unsupported
		_ = run()
	}
	if parent.Err() == nil {
		close(asked)
	}
}

// Sleep makes Check pass although the controller does not run, until Run or Wake.
func (s *Supervisor) Sleep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = nil
}

// Wake ends Sleep.
func (s *Supervisor) Wake() { s.stopped() }

// first returns a channel that is closed when a resource gets its first object; nil: it has had one, or that is not known.
func first(c client.Client, kind schema.GroupVersionResource) <-chan struct{} {
	sparse, ok := c.(client.Sparse)
	if !ok {
		return nil
	}
	appeared, ok := sparse.First(kind)
	if !ok {
		return nil
	}
	select {
	case <-appeared:
		return nil
	default:
		return appeared
	}
}

// Await returns the index of a closed channel; -1: ctx has ended.
func Await(ctx context.Context, all []<-chan struct{}) int {
	cases := []reflect.SelectCase{{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ctx.Done())}}
	for _, c := range all {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c)})
	}
	chosen, _, _ := reflect.Select(cases)
	return chosen - 1
}
