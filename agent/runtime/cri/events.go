package cri

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	apievents "github.com/containerd/containerd/api/events"
	eventsapi "github.com/containerd/containerd/api/services/events/v1"
	"github.com/containerd/containerd/api/types"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/runtime"
	"monopod/apiserver/kit/backoff"
)

const (
	topicStart  = "/tasks/start"
	topicExit   = "/tasks/exit"
	topicOOM    = "/tasks/oom"
	topicMarker = "/monopod/subscribed" // our own, see eventStream.publishMarker

	// buffered is the size of the event buffer; more events wait in containerd.
	buffered = 256
	// readyTimeout is how long Events waits for an unavailable containerd.
	readyTimeout = 2 * time.Second
	// A stream that fails before the subscription begins is reopened after minReopenDelay, doubled each time up to
	// maxReopenDelay.
	minReopenDelay = 20 * time.Millisecond
	maxReopenDelay = time.Second
)

// Events returns when the subscription to containerd's events has begun, so no later event is missed. If containerd is
// unavailable for more than readyTimeout, it returns anyway, and the first event is EventResync. The channel is closed
// when ctx ends or the Runtime is closed.
func (r *Runtime) Events(ctx context.Context) (<-chan runtime.Event, error) {
	ctx, cancel := context.WithCancel(InNamespace(ctx))
	stop := context.AfterFunc(r.life, cancel)
	f := &eventStream{r: r, out: make(chan runtime.Event, buffered), ready: make(chan struct{})}
	r.config.Guard.Go(&r.streams, "containerd events", func() { // its end closes out, and the agent calls Events again
		defer stop()
		defer cancel()
		f.run(ctx)
	})
	timer := time.NewTimer(readyTimeout)
	defer timer.Stop()
	select {
	case <-f.ready:
	case <-timer.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return f.out, nil
}

// eventStream is the stream that one call of Events returned.
type eventStream struct {
	r          *Runtime
	out        chan runtime.Event
	ready      chan struct{} // closed when the first subscription has begun
	began      time.Time
	subscribed bool // the stream that broke had begun
}

// run reopens the stream whenever it breaks.
func (f *eventStream) run(ctx context.Context) {
	defer close(f.out)
	var kernel sync.WaitGroup
	defer kernel.Wait()
	g := f.r.config.Guard
	g.Go(&kernel, "kernel log", func() { g.Keep(ctx, clock.RealClock{}, "kernel log", func() { f.watchKernel(ctx) }) })
	f.began = time.Now()
	retry := backoff.Retry{First: minReopenDelay, Most: maxReopenDelay}
	for first := true; ctx.Err() == nil; first = false {
		err := f.follow(ctx, first)
		if ctx.Err() != nil {
			return
		}
		f.r.config.Log.Info("the event stream of containerd broke", zap.Error(err))
		if f.subscribed {
			f.subscribed = false
			retry.Reset()
			f.send(ctx, runtime.Event{Type: runtime.EventLost, At: time.Now()})
		}
		if sleep(ctx, retry.Next()) != nil {
			return
		}
	}
}

// follow sends events until the stream breaks.
func (f *eventStream) follow(ctx context.Context, first bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	filters := make([]string, 0, 4)
	for _, topic := range []string{topicStart, topicExit, topicOOM, topicMarker} {
		filters = append(filters, fmt.Sprintf("namespace==%q,topic==%q", Namespace, topic))
	}
	client := eventsapi.NewEventsClient(f.r.conn)
	stream, err := client.Subscribe(ctx, &eventsapi.SubscribeRequest{Filters: filters}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	marker, stopMarking := f.publishMarker(ctx, client)
	defer stopMarking()
	for {
		envelope, err := stream.Recv()
		if err != nil {
			return err
		}
		if envelope.Topic != topicMarker {
			f.deliver(ctx, envelope)
			continue
		}
		if string(envelope.Event.GetValue()) == marker {
			stopMarking()
			f.onSubscribed(ctx, first)
			first, marker = false, ""
		}
	}
}

// publishMarker publishes a marker event repeatedly until stop is called: containerd does not report when a
// subscription begins, but it has begun once the marker arrives. stop waits for the end; it may be called more than
// once.
func (f *eventStream) publishMarker(ctx context.Context, client eventsapi.EventsClient) (marker string, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	task := &apievents.TaskPaused{ContainerID: rand.Text()}
	event, err := anypb.New(task)
	if err != nil {
		panic(err) // a message of three lines cannot fail to marshal
	}
	event.TypeUrl = string(task.ProtoReflect().Descriptor().FullName()) // as containerd's own events: without a prefix
	var wg sync.WaitGroup
	f.r.config.Guard.Go(&wg, "containerd events", func() {
		for ctx.Err() == nil {
			_, err := client.Publish(ctx, &eventsapi.PublishRequest{Topic: topicMarker, Event: event})
			if err != nil || sleep(ctx, 5*time.Millisecond) != nil {
				return
			}
		}
	})
	return string(event.Value), func() { cancel(); wg.Wait() }
}

// onSubscribed is called when a subscription has begun. It records the owners of the existing containers; deliver looks
// up the owners that are missing.
func (f *eventStream) onSubscribed(ctx context.Context, first bool) {
	if sandboxes, err := f.r.ListPodSandbox(ctx, nil); err == nil {
		for _, s := range sandboxes {
			f.r.owners.add(s.Id, owner{sandbox: s.Id, pod: s.GetMetadata().GetUid()})
		}
	}
	if containers, err := f.r.ListContainers(ctx, nil); err == nil {
		for _, c := range containers {
			s, _ := f.r.owners.get(c.PodSandboxId)
			f.r.owners.add(c.Id, owner{sandbox: c.PodSandboxId, pod: s.pod})
		}
	}
	f.subscribed = true
	late := time.Since(f.began) > readyTimeout/2
	if first {
		close(f.ready)
	}
	if !first || late {
		f.send(ctx, runtime.Event{Type: runtime.EventResync, At: time.Now()})
	}
}

func (f *eventStream) send(ctx context.Context, e runtime.Event) {
	select {
	case f.out <- e:
	case <-ctx.Done():
	}
}

// deliver translates one event of containerd and sends it.
func (f *eventStream) deliver(ctx context.Context, envelope *types.Envelope) {
	e, id, pid, err := translate(envelope)
	if err != nil {
		f.r.config.Log.Warn("cannot read an event of containerd", zap.String("topic", envelope.Topic), zap.Error(err))
		return
	}
	o, ok := f.r.owners.get(id)
	if !ok && e.Type != runtime.EventContainerStarted {
		o, ok = f.r.lookup(ctx, id)
	}
	if !ok {
		return // the event is about a sandbox that is being created, an exec, or another client's container
	}
	e.SandboxID, e.PodUID = o.sandbox, o.pod
	if id != o.sandbox {
		e.ContainerID = id
	}
	if e.Type == runtime.EventContainerExited {
		f.r.owners.markExited(id, exit{e.ExitCode, e.At})
		f.sendOOM(ctx, e, pid)
	}
	if id == o.sandbox {
		if e.Type != runtime.EventContainerExited {
			return
		}
		e.Type = runtime.EventSandboxExited
	}
	f.send(ctx, e)
}

// translate converts an event of containerd. id is the container, or empty if the event is not about the container's
// first process; pid is the process that exited.
func translate(envelope *types.Envelope) (e runtime.Event, id string, pid int, err error) {
	e.At = envelope.Timestamp.AsTime()
	value := envelope.Event.GetValue()
	switch envelope.Topic {
	case topicStart:
		var start apievents.TaskStart
		err = proto.Unmarshal(value, &start)
		e.Type, id = runtime.EventContainerStarted, start.ContainerID
	case topicOOM:
		var oom apievents.TaskOOM
		err = proto.Unmarshal(value, &oom)
		e.Type, id = runtime.EventContainerOOM, oom.ContainerID
	case topicExit:
		var exit apievents.TaskExit
		err = proto.Unmarshal(value, &exit)
		e.Type, e.ExitCode, pid = runtime.EventContainerExited, int32(exit.ExitStatus), int(exit.Pid)
		if exit.ExitedAt.IsValid() {
			e.At = exit.ExitedAt.AsTime()
		}
		if exit.ID == exit.ContainerID { // otherwise a process of exec
			id = exit.ContainerID
		}
	}
	return e, id, pid, err
}

// lookup asks CRI for the owner of a container that was created before the subscription.
func (r *Runtime) lookup(ctx context.Context, id string) (owner, bool) {
	if id == "" {
		return owner{}, false
	}
	sandboxID := id
	containers, err := r.ListContainers(ctx, &cri.ContainerFilter{Id: id})
	if err == nil && len(containers) == 1 {
		sandboxID = containers[0].PodSandboxId
	}
	sandboxes, err := r.ListPodSandbox(ctx, &cri.PodSandboxFilter{Id: sandboxID})
	if err != nil || len(sandboxes) != 1 {
		return owner{}, false
	}
	o := owner{sandbox: sandboxID, pod: sandboxes[0].GetMetadata().GetUid()}
	r.owners.add(id, o)
	return o, true
}
