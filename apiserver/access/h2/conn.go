package h2

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"monopod/apiserver/process/guard"
)

// conn is one connection.
type conn struct {
	s      *Server
	nc     net.Conn
	tls    *tls.ConnectionState
	ctx    context.Context // of all its requests
	remote string

	// Of the goroutine that reads.
	framer  *http2.Framer
	names   map[string]string // of headers
	greeted bool              // the client's first SETTINGS were read

	mu          sync.Mutex // guards what follows, and the streams
	out         output
	streams     map[uint32]*stream // that are neither over nor reset
	handlers    int                // that run
	last        uint32             // the highest stream of the client
	room        int64              // how much of bodies the client may send
	read        int64              // how much of bodies was read, which the client does not know yet
	firstWindow int64              // how much the client takes of a response before it says so
	retiring    bool               // the client sends no more requests, or does not know that yet
	idleSince   time.Time
	idle        *time.Timer
}

// Errors of a connection.
const (
	errProtocol = http2.ConnectionError(http2.ErrCodeProtocol)
	errFlow     = http2.ConnectionError(http2.ErrCodeFlowControl)
	errClosed   = http2.ConnectionError(http2.ErrCodeStreamClosed)
)

// serve reads frames until the connection ends.
func (c *conn) serve() error {
	limits := c.s.srv.HTTP2
	c.greet(
		http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: uint32(limits.MaxConcurrentStreams)},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: uint32(c.s.srv.MaxHeaderBytes)},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(limits.MaxReceiveBufferPerStream)},
	)
	if !secure(c.tls) {
		return http2.ConnectionError(http2.ErrCodeInadequateSecurity)
	}
	if err := c.nc.SetReadDeadline(time.Now().Add(greetTime)); err != nil {
		return err
	}
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c.nc, preface); err != nil {
		return err
	}
	if string(preface) != http2.ClientPreface {
		return errProtocol
	}
	c.watchIdle()
	for {
		f, err := c.framer.ReadFrame()
		if err == nil {
			err = c.frame(f)
		}
		if err != nil {
			stream := http2.StreamError{}
			if !errors.As(err, &stream) {
				return err
			}
			if err = c.refuse(stream); err != nil {
				return err
			}
		}
	}
}

// greet sends the server's settings.
func (c *conn) greet(settings ...http2.Setting) {
	c.mu.Lock()
	defer c.mu.Unlock()
	payload := make([]byte, 0, 6*len(settings))
	for _, s := range settings {
		payload = binary.BigEndian.AppendUint16(payload, uint16(s.ID))
		payload = binary.BigEndian.AppendUint32(payload, s.Val)
	}
	c.out.control(http2.FrameSettings, 0, 0, payload)
	if more := c.room - firstWindow; more > 0 {
		c.out.control(http2.FrameWindowUpdate, 0, 0, binary.BigEndian.AppendUint32(nil, uint32(more)))
	}
}

// watchIdle retires the connection when it had no request for the server's IdleTimeout.
func (c *conn) watchIdle() {
	limit := c.s.srv.IdleTimeout
	if limit <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = time.AfterFunc(limit, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		left := limit
		if len(c.streams) == 0 {
			left -= time.Since(c.idleSince)
		}
		switch {
		case c.out.err != nil:
		case left <= 0:
			c.goAway(http2.ErrCodeNo)
		default:
			c.idle.Reset(left)
		}
	})
}

// end closes the connection; err is why. The client gets what was written before.
func (c *conn) end(err error) {
	code := http2.ConnectionError(http2.ErrCodeNo)
	if errors.Is(err, http2.ErrFrameTooLarge) {
		code = http2.ConnectionError(http2.ErrCodeFrameSize)
	} else if p := (*guard.Panic)(nil); errors.As(err, &p) {
		code = http2.ConnectionError(http2.ErrCodeInternal)
	} else {
		errors.As(err, &code)
	}
	sent := c.finish(http2.ErrCode(code))
	if half, ok := c.nc.(interface{ CloseWrite() error }); sent && ok && half.CloseWrite() == nil && c.nc.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
		_, _ = io.Copy(io.Discard, c.nc)
	}
	c.nc.Close()
}

// finish ends all requests, tells the client why unless code is NO_ERROR, and waits until that is sent. It returns false if it is not.
func (c *conn) finish(code http2.ErrCode) bool {
	deadline := c.nc.SetWriteDeadline(time.Now().Add(lastTime))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle != nil {
		c.idle.Stop()
	}
	for _, st := range c.streams {
		st.stop(errGone)
	}
	if code != http2.ErrCodeNo {
		c.out.control(http2.FrameGoAway, 0, 0, goAway(c.last, code))
	}
	for c.out.sending && c.out.err == nil && deadline == nil {
		c.out.sent.Wait()
	}
	sent := c.out.err == nil
	c.out.fail(errGone)
	return sent
}

// frame handles one frame of the client.
func (c *conn) frame(f http2.Frame) error {
	if !c.greeted {
		if s, ok := f.(*http2.SettingsFrame); !ok || s.IsAck() {
			return errProtocol
		}
		c.greeted = true
		if err := c.nc.SetReadDeadline(time.Time{}); err != nil {
			return err
		}
	}
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		return c.headers(f)
	case *http2.DataFrame:
		return c.data(f)
	case *http2.SettingsFrame:
		return c.settings(f)
	case *http2.WindowUpdateFrame:
		return c.windowUpdate(f)
	case *http2.RSTStreamFrame:
		return c.canceled(f)
	case *http2.PingFrame:
		if !f.IsAck() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.out.control(http2.FramePing, http2.FlagPingAck, 0, f.Data[:])
			c.out.drain()
		}
	case *http2.PriorityFrame:
		if f.StreamDep == f.StreamID {
			return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeProtocol}
		}
	case *http2.PushPromiseFrame:
		return errProtocol
	}
	return nil // GOAWAY, after which the client's running requests still count, and frames that nobody knows
}

// refuse resets a stream, or does not begin it.
func (c *conn) refuse(err http2.StreamError) error {
	if err.StreamID%2 == 0 {
		return errProtocol
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, err.StreamID)
	if st := c.streams[err.StreamID]; st != nil {
		st.reset(err.Code)
	} else {
		c.out.control(http2.FrameRSTStream, 0, err.StreamID, binary.BigEndian.AppendUint32(nil, uint32(err.Code)))
	}
	c.out.drain()
	return nil
}

// headers begins a request, or ends its body with trailers.
func (c *conn) headers(f *http2.MetaHeadersFrame) error {
	id := f.StreamID
	c.mu.Lock()
	defer c.mu.Unlock()
	switch st := c.streams[id]; {
	case id%2 == 0:
		return errProtocol
	case st != nil:
		return st.trailers(f)
	case id <= c.last:
		return errClosed
	case c.retiring:
		return nil // GOAWAY says that it is not served
	}
	c.last = id
	refused := http2.StreamError{StreamID: id, Code: http2.ErrCodeRefusedStream}
	if limit := c.s.srv.HTTP2.MaxConcurrentStreams; len(c.streams) >= limit || c.handlers >= 2*limit { // those of reset streams still run
		return refused
	}
	if f.HasPriority() && f.Priority.StreamDep == id {
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeProtocol}
	}
	st := &stream{c: c, id: id, window: c.firstWindow, room: int64(c.s.srv.HTTP2.MaxReceiveBufferPerStream), length: -1, ended: f.StreamEnded()}
	st.changed.L = &c.mu
	h, err := st.begin(f)
	if err != nil {
		return err
	}
	c.streams[id] = st
	c.handlers++
	c.s.guard.Spawn("request", func() { st.serve(h) })
	c.out.drain()
	return nil
}

// data adds to the body of a request.
func (c *conn) data(f *http2.DataFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	size := int64(f.Length)
	if c.room < size {
		return errFlow
	}
	c.room -= size
	st := c.streams[f.StreamID]
	if st == nil || st.ended {
		c.consumed(size)
		if f.StreamID > c.last {
			return errProtocol
		}
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeStreamClosed}
	}
	if st.room < size {
		c.consumed(size)
		return http2.StreamError{StreamID: st.id, Code: http2.ErrCodeFlowControl}
	}
	st.room -= size
	data := f.Data()
	st.consumed(size - int64(len(data))) // its padding
	st.got += int64(len(data))
	wrong := st.length >= 0 && (st.got > st.length || f.StreamEnded() && st.got < st.length)
	if wrong || st.bodyErr != nil { // nobody reads it
		c.consumed(int64(len(data)))
	} else {
		st.body = append(st.body, data...)
	}
	if wrong {
		return http2.StreamError{StreamID: st.id, Code: http2.ErrCodeProtocol}
	}
	if f.StreamEnded() {
		st.finishBody(io.EOF)
	}
	st.changed.Broadcast()
	return nil
}

// consumed tells the client, now and then, that it may send more. c.mu is held.
func (c *conn) consumed(n int64) {
	if c.read += n; c.read >= int64(c.s.srv.HTTP2.MaxReceiveBufferPerConnection)/4 {
		c.out.control(http2.FrameWindowUpdate, 0, 0, binary.BigEndian.AppendUint32(nil, uint32(c.read)))
		c.room, c.read = c.room+c.read, 0
	}
}

// settings takes the client's settings.
func (c *conn) settings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := f.ForeachSetting(c.setting); err != nil {
		return err
	}
	c.out.control(http2.FrameSettings, http2.FlagSettingsAck, 0, nil)
	c.out.drain()
	return nil
}

func (c *conn) setting(s http2.Setting) error {
	if err := s.Valid(); err != nil {
		return err
	}
	switch s.ID {
	case http2.SettingHeaderTableSize:
		c.out.enc.SetMaxDynamicTableSize(min(s.Val, 4096))
	case http2.SettingMaxFrameSize:
		c.out.maxFrame = int(min(s.Val, dataSize))
	case http2.SettingInitialWindowSize:
		grown := int64(s.Val) - c.firstWindow
		c.firstWindow = int64(s.Val)
		for _, st := range c.streams {
			if st.window += grown; st.window > math.MaxInt32 {
				return errFlow
			}
			st.changed.Broadcast()
		}
	}
	return nil
}

// windowUpdate lets the server send more.
func (c *conn) windowUpdate(f *http2.WindowUpdateFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.StreamID == 0 {
		if c.out.window += int64(f.Increment); c.out.window > math.MaxInt32 {
			return errFlow
		}
		c.out.next()
		return nil
	}
	st := c.streams[f.StreamID]
	if st == nil {
		return c.known(f.StreamID)
	}
	if st.window += int64(f.Increment); st.window > math.MaxInt32 {
		return http2.StreamError{StreamID: st.id, Code: http2.ErrCodeFlowControl}
	}
	st.changed.Broadcast()
	return nil
}

// known returns an error if the client has not begun the stream.
func (c *conn) known(id uint32) error {
	if id > c.last || id%2 == 0 {
		return errProtocol
	}
	return nil
}

// canceled ends a request that the client no longer wants.
func (c *conn) canceled(f *http2.RSTStreamFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if st := c.streams[f.StreamID]; st != nil {
		c.remove(st)
		st.stop(http2.StreamError{StreamID: st.id, Code: f.ErrCode})
		return nil
	}
	return c.known(f.StreamID)
}

// remove takes a stream away that is over or reset. c.mu is held.
func (c *conn) remove(st *stream) {
	if c.streams[st.id] != st {
		return
	}
	delete(c.streams, st.id)
	if len(c.streams) == 0 {
		c.idleSince = time.Now()
		if c.retiring {
			c.linger()
		}
	}
}

// retire lets the client send no more requests, and ends the connection after those that run.
func (c *conn) retire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.goAway(http2.ErrCodeNo)
}

// goAway is retire while c.mu is held.
func (c *conn) goAway(code http2.ErrCode) {
	if c.retiring {
		return
	}
	c.retiring = true
	c.out.control(http2.FrameGoAway, 0, 0, goAway(c.last, code))
	if len(c.streams) == 0 {
		c.linger()
	}
}

// linger lets the client close the connection, soon.
func (c *conn) linger() { _ = c.nc.SetReadDeadline(time.Now().Add(lingerTime)) }

func goAway(last uint32, code http2.ErrCode) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, last), uint32(code))
}

// canonical returns a header's name as http.Header has it. Few names are sent by a client, and those are known.
func (c *conn) canonical(name string) string {
	if known, ok := c.names[name]; ok {
		return known
	}
	known := http.CanonicalHeaderKey(name)
	if len(c.names) < maxNames && len(name) < maxName {
		if c.names == nil {
			c.names = map[string]string{}
		}
		c.names[name] = known
	}
	return known
}

// The names that a connection keeps are at most so many, and each so long.
const (
	maxNames = 48
	maxName  = 40
)
