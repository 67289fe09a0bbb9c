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
	topicMarker = "/monopod/subscribed" // our own, see follower.mark

	// buffered is the size of the event buffer; more events wait in containerd.
	buffered = 256
	// patience is how long Events waits for an unavailable containerd.
	patience = 2 * time.Second
	// A stream that fails before it has begun is reopened after minRespite, doubled
	// each time up to maxRespite.
	minRespite = 20 * time.Millisecond
	maxRespite = time.Second
)

// Events returns when containerd's stream has begun, so no later event is missed. If
// containerd is unavailable for more than 2 s, it returns anyway, and the first event
// is EventResync. The channel is closed when ctx ends or the Runtime is closed.
func (r *Runtime) Events(ctx context.Context) (<-chan runtime.Event, error) {
	ctx, cancel := context.WithCancel(InNamespace(ctx))
	stop := context.AfterFunc(r.life, cancel)
	f := &follower{r: r, out: make(chan runtime.Event, buffered), ready: make(chan struct{})}
	r.config.Guard.Go(&r.streams, "containerd events", func() { // its end closes out, and the agent calls Events again
		defer stop()
		defer cancel()
		f.run(ctx)
	})
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-f.ready:
	case <-timer.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return f.out, nil
}

// follower is one call of Events.
type follower struct {
	r     *Runtime
	out   chan runtime.Event
	ready chan struct{} // closed when the first stream has begun
	began time.Time
	stood bool // the stream that broke had begun
}

// run reopens the stream whenever it breaks.
func (f *follower) run(ctx context.Context) {
	defer close(f.out)
	var kernel sync.WaitGroup
	defer kernel.Wait()
	g := f.r.config.Guard
	g.Go(&kernel, "kernel log", func() { g.Keep(ctx, clock.RealClock{}, "kernel log", func() { f.watchKernel(ctx) }) })
	f.began = time.Now()
	retry := backoff.Retry{First: minRespite, Most: maxRespite}
	for first := true; ctx.Err() == nil; first = false {
		err := f.follow(ctx, first)
		if ctx.Err() != nil {
			return
		}
		f.r.config.Log.Info("the event stream of containerd broke", zap.Error(err))
		if f.stood {
			f.stood = false
			retry.Reset()
			f.send(ctx, runtime.Event{Type: runtime.EventLost, At: time.Now()})
		}
		if sleep(ctx, retry.Next()) != nil {
			return
		}
	}
}

// follow sends events until the stream breaks.
func (f *follower) follow(ctx context.Context, first bool) error {
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
	marker, stopMarking := f.mark(ctx, client)
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
			f.stands(ctx, first)
			first, marker = false, ""
		}
	}
}

// mark publishes a marker event repeatedly until stop is called: containerd does not
// report when a subscription begins, but it has begun once the marker arrives. stop
// waits for the end and may be called again.
func (f *follower) mark(ctx context.Context, client eventsapi.EventsClient) (marker string, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	task := &apievents.TaskPaused{ContainerID: rand.Text()}
	event, err := anypb.New(task)
	if err != nil {
		panic(err) // a message of three lines cannot fail to marshal
	}
	event.TypeUrl = string(task.ProtoReflect().Descriptor().FullName()) // containerd's way
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

// stands is called when a stream has begun. It lists the existing containers; those that it misses are looked up one by
// one.
func (f *follower) stands(ctx context.Context, first bool) {
	if sandboxes, err := f.r.ListPodSandbox(ctx, nil); err == nil {
		for _, s := range sandboxes {
			f.r.known.add(s.Id, owner{sandbox: s.Id, pod: s.GetMetadata().GetUid()})
		}
	}
	if containers, err := f.r.ListContainers(ctx, nil); err == nil {
		for _, c := range containers {
			s, _ := f.r.known.get(c.PodSandboxId)
			f.r.known.add(c.Id, owner{sandbox: c.PodSandboxId, pod: s.pod})
		}
	}
	f.stood = true
	late := time.Since(f.began) > patience/2
	if first {
		close(f.ready)
	}
	if !first || late {
		f.send(ctx, runtime.Event{Type: runtime.EventResync, At: time.Now()})
	}
}

func (f *follower) send(ctx context.Context, e runtime.Event) {
	select {
	case f.out <- e:
	case <-ctx.Done():
	}
}

// deliver translates one event of containerd and sends it.
func (f *follower) deliver(ctx context.Context, envelope *types.Envelope) {
	e, id, pid, err := translate(envelope)
	if err != nil {
		f.r.config.Log.Warn("cannot read an event of containerd", zap.String("topic", envelope.Topic), zap.Error(err))
		return
	}
	o, ok := f.r.known.get(id)
	if !ok && e.Type != runtime.EventContainerStarted {
		o, ok = f.r.lookup(ctx, id)
	}
	if !ok {
		return // a sandbox that is being created, a process of exec, another client's container
	}
	e.SandboxID, e.PodUID = o.sandbox, o.pod
	if id != o.sandbox {
		e.ContainerID = id
	}
	if e.Type == runtime.EventContainerExited {
		f.r.known.exited(id, exit{e.ExitCode, e.At})
		f.explain(ctx, e, pid)
	}
	if id == o.sandbox {
		if e.Type != runtime.EventContainerExited {
			return
		}
		e.Type = runtime.EventSandboxExited
	}
	f.send(ctx, e)
}

// translate converts an event of containerd; id is empty if it is not about a
// container's first process, pid is the process that exited.
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

// lookup asks CRI for the owner of a container whose creation was not seen.
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
	r.known.add(id, o)
	return o, true
}
