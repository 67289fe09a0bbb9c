package h2

import (
	"bytes"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"monopod/apiserver/process/guard"
)

const (
	// outSize is how much of a connection's output waits while more is sent, in bytes, before handlers wait. TLS sends it in records of 16 KB,
	// which a frame of DATA fills with its header.
	outSize  = 64 << 10
	dataSize = 16<<10 - 9
	// crowded is the same for those that cannot wait, see Reserve.
	crowded = 8 * outSize
)

// output is what a connection sends: whole frames, in the order in which they are appended.
type output struct {
	nc       net.Conn
	guard    *guard.Guard
	mu       *sync.Mutex    // the connection's, which guards what follows
	full     [][]byte       // are not sent yet, each of outSize and more
	waiting  []byte         // is not sent yet, after those
	sending  bool           // a goroutine sends
	err      error          // why nothing is sent any more
	sent     sync.Cond      // a goroutine has stopped to send
	drained  sync.Cond      // there is room for the answers of the goroutine that reads
	window   int64          // how much of bodies the client takes
	blocked  []*stream      // wait for room or window, the first one longest
	maxFrame int            // that the client takes
	enc      *hpack.Encoder // into block
	block    bytes.Buffer
}

func (o *output) open(nc net.Conn, panics *guard.Guard, mu *sync.Mutex) {
	o.nc, o.guard, o.mu, o.window, o.maxFrame = nc, panics, mu, firstWindow, dataSize
	o.sent.L, o.drained.L = mu, mu
	o.enc = hpack.NewEncoder(&o.block)
}

// outputs are buffers for the output of connections.
var outputs = sync.Pool{New: func() any { return new(make([]byte, 0, outSize+outSize/2)) }}

// append appends a frame; the caller sends it. The lock is held.
func (o *output) append(typ http2.FrameType, flags http2.Flags, id uint32, payload []byte) {
	if o.err != nil {
		return
	}
	if len(o.waiting) >= outSize {
		o.full, o.waiting = append(o.full, o.waiting), nil
	}
	if o.waiting == nil {
		o.waiting = *outputs.Get().(*[]byte)
	}
	n := len(payload)
	o.waiting = append(o.waiting, byte(n>>16), byte(n>>8), byte(n), byte(typ), byte(flags), byte(id>>24), byte(id>>16), byte(id>>8), byte(id))
	o.waiting = append(o.waiting, payload...)
}

// control sends a small frame, whatever else waits. The lock is held.
func (o *output) control(typ http2.FrameType, flags http2.Flags, id uint32, payload []byte) {
	o.append(typ, flags, id, payload)
	o.flush()
}

// header appends a header block that is in o.block. The lock is held.
func (o *output) header(id uint32, end bool) {
	typ, flags, block := http2.FrameHeaders, http2.Flags(0), o.block.Bytes()
	if end {
		flags = http2.FlagHeadersEndStream
	}
	for first := true; first || len(block) > 0; first = false {
		n := min(len(block), o.maxFrame)
		if n == len(block) {
			flags |= http2.FlagHeadersEndHeaders
		}
		o.append(typ, flags, id, block[:n])
		typ, flags, block = http2.FrameContinuation, 0, block[n:]
	}
	o.block.Reset()
}

// field adds a header to o.block. The lock is held.
func (o *output) field(name, value string) {
	_ = o.enc.WriteField(hpack.HeaderField{Name: name, Value: value}) // a bytes.Buffer does not fail
}

// flush sees to it that what was appended is sent. The lock is held.
func (o *output) flush() {
	if o.mine() {
		o.guard.Spawn("connection", o.send)
	}
}

// size is about how much is not sent yet. The lock is held.
func (o *output) size() int { return len(o.full)*outSize + len(o.waiting) }

// take returns what is to be sent next, nil if there is nothing. The lock is held.
func (o *output) take() (out []byte) {
	if len(o.full) > 0 {
		out, o.full = o.full[0], o.full[1:]
	} else {
		out, o.waiting = o.waiting, nil
	}
	return out
}

// mine reports whether the caller has to send. The lock is held.
func (o *output) mine() bool {
	if o.sending || o.size() == 0 || o.err != nil {
		return false
	}
	o.sending = true
	return true
}

// send sends what was appended, until there is no more.
func (o *output) send() {
	runtime.Gosched() // streams that are about to write do so before
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.size() > 0 && o.err == nil {
		out := o.take()
		o.next()
		o.drained.Broadcast()
		o.mu.Unlock()
		err := o.guard.Call("connection", func() error { _, err := o.nc.Write(out); return err })
		if out = out[:0]; cap(out) <= 2*outSize {
			outputs.Put(&out)
		}
		o.mu.Lock()
		if err != nil {
			o.fail(err)
		}
	}
	o.sending = false
	o.sent.Broadcast()
}

// drain makes the goroutine that reads wait while the client does not read the answers. The lock is held.
func (o *output) drain() {
	for o.size() > crowded+outSize && o.err == nil {
		o.drained.Wait()
	}
}

// fail ends the output, and makes the goroutine that reads end the connection. The lock is held.
func (o *output) fail(err error) {
	if o.err != nil {
		return
	}
	o.err, o.full, o.waiting = err, nil, nil
	o.drained.Broadcast()
	o.sent.Broadcast()
	_ = o.nc.SetReadDeadline(time.Unix(1, 0))
}

// next lets the stream go on that has waited longest, if it can. The lock is held.
func (o *output) next() {
	if len(o.blocked) > 0 && o.size() < outSize && o.window > 0 {
		st := o.blocked[0]
		o.blocked = o.blocked[1:]
		st.queued = false
		st.changed.Broadcast()
	}
}

// write appends p as frames of DATA, as much at a time as the client takes, in turn with other streams. The last one ends the response if end
// is set. The caller sends the last part. c.mu is held.
func (st *stream) write(p []byte, end bool) error {
	o := &st.c.out
	for {
		n, flags := len(p), http2.Flags(0)
		if n > 0 {
			room, err := st.await()
			if err != nil {
				return err
			}
			n = int(min(int64(n), int64(o.maxFrame), room))
		}
		if end && n == len(p) {
			flags = http2.FlagDataEndStream
		}
		o.append(http2.FrameData, flags, st.id, p[:n])
		st.window -= int64(n)
		if st.later.reserved > 0 {
			st.later.reserved -= int64(n)
		} else {
			o.window -= int64(n)
		}
		if n > 0 {
			o.next()
		}
		if p = p[n:]; len(p) == 0 {
			return st.err
		}
		o.flush()
	}
}

// reserve gives back what is reserved, and reserves n bytes for a stream that writes now and then, if there is room. c.mu is held.
func (st *stream) reserve(n int64) bool {
	o := &st.c.out
	if st.later.reserved > 0 {
		o.window += st.later.reserved
		st.later.reserved = 0
		o.next()
	}
	if o.size() >= crowded || len(o.blocked) > 0 || min(st.window, o.window) < n {
		return false
	}
	o.window -= n
	st.later.reserved = n
	return true
}

// await waits until the stream may append so much in a frame of DATA, after those that wait for the same. c.mu is held.
func (st *stream) await() (room int64, err error) {
	o := &st.c.out
	chosen := false // it was the first one of those that waited
	for st.err == nil {
		switch {
		case st.later.reserved > 0:
			return st.later.reserved, nil
		case st.window <= 0:
			if chosen { // so it is somebody else's turn
				chosen = false
				o.next()
			}
			o.flush()
			st.wait()
		case o.size() >= outSize || o.window <= 0 || !chosen && len(o.blocked) > 0:
			o.flush() // what it has appended before
			if chosen {
				o.blocked = slices.Insert(o.blocked, 0, st)
			} else {
				o.blocked = append(o.blocked, st)
			}
			for st.queued = true; st.queued && st.err == nil; {
				st.wait()
			}
			if chosen = !st.queued; !chosen {
				st.queued = false
				o.blocked = slices.DeleteFunc(o.blocked, func(other *stream) bool { return other == st })
			}
		default:
			return min(st.window, o.window), nil
		}
	}
	if chosen {
		o.next()
	}
	return 0, st.err
}
