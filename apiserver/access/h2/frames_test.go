package h2

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// raw is a client that sends any frames.
type raw struct {
	*http2.Framer
	t    *testing.T
	nc   net.Conn
	over chan struct{} // closed when the server has closed the connection
	srv  *http.Server
	enc  *hpack.Encoder
	buf  bytes.Buffer

	mu   sync.Mutex // guards what follows
	seen []string   // frames of the server
	data map[uint32]int
	stop bool // it reads no more
	more *sync.Cond
}

// dial connects to a server of h, within a bubble. Nothing is sent yet.
func dial(t *testing.T, h http.HandlerFunc) *raw {
	t.Helper()
	here, there := net.Pipe()
	srv := &http.Server{Handler: h, HTTP2: limits(), MaxHeaderBytes: 64 << 10, IdleTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	Configure(srv, nil)
	c := &raw{Framer: http2.NewFramer(there, there), t: t, nc: there, over: make(chan struct{}), srv: srv, data: map[uint32]int{}}
	c.more = sync.NewCond(&c.mu)
	c.enc = hpack.NewEncoder(&c.buf)
	c.AllowIllegalWrites = true
	s := &Server{srv: srv, conns: map[*conn]struct{}{}}
	srv.RegisterOnShutdown(s.shutdown)
	go s.serve(context.Background(), here, nil)
	go c.read()
	t.Cleanup(func() { there.Close() })
	return c
}

// greeted is dial, with what a client says first.
func greeted(t *testing.T, h http.HandlerFunc, settings ...http2.Setting) *raw {
	t.Helper()
	c := dial(t, h)
	c.send([]byte(http2.ClientPreface))
	c.ok(c.WriteSettings(settings...))
	return c
}

func (c *raw) send(p []byte) {
	c.t.Helper()
	_, err := c.nc.Write(p)
	c.ok(err)
}

func (c *raw) ok(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// read notes the server's frames.
func (c *raw) read() {
	defer close(c.over)
	dec := hpack.NewDecoder(4096, nil)
	for {
		c.mu.Lock()
		for c.stop {
			c.more.Wait()
		}
		c.mu.Unlock()
		f, err := c.ReadFrame()
		if err != nil {
			return
		}
		text := fmt.Sprintf("%v %d", f.Header().Type, f.Header().StreamID)
		switch f := f.(type) {
		case *http2.HeadersFrame:
			fields, _ := dec.DecodeFull(f.HeaderBlockFragment())
			text += " " + fields[0].Value
		case *http2.RSTStreamFrame:
			text += " " + f.ErrCode.String()
		case *http2.GoAwayFrame:
			text += " " + strconv.Itoa(int(f.LastStreamID)) + " " + f.ErrCode.String()
		}
		if f.Header().Flags.Has(http2.FlagDataEndStream) && f.Header().Type <= http2.FrameHeaders {
			text += " END"
		}
		c.mu.Lock()
		if f, ok := f.(*http2.DataFrame); ok {
			c.data[f.StreamID] += len(f.Data())
		}
		c.seen = append(c.seen, text)
		c.mu.Unlock()
	}
}

// hold makes the client read no more, until it is called with false.
func (c *raw) hold(stop bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stop = stop
	c.more.Broadcast()
}

// request sends a request, with more headers in pairs.
func (c *raw) request(id uint32, end bool, method string, more ...string) {
	c.t.Helper()
	c.buf.Reset()
	fields := append([]string{":method", method, ":scheme", "https", ":path", "/", ":authority", "host"}, more...)
	for i := 0; i < len(fields); i += 2 {
		c.ok(c.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	block := c.buf.Next(frameSize)
	c.ok(c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: c.buf.Len() == 0, EndStream: end}))
	for c.buf.Len() > 0 {
		block = c.buf.Next(frameSize)
		c.ok(c.WriteContinuation(id, c.buf.Len() == 0, block))
	}
}

// frames returns what the server has sent after its settings, when nothing moves any more.
func (c *raw) frames() string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	var text []string
	for _, f := range c.seen {
		if !strings.HasPrefix(f, "SETTINGS") && f != "WINDOW_UPDATE 0" {
			text = append(text, f)
		}
	}
	c.seen = nil
	return strings.Join(text, ", ")
}

func (c *raw) want(frames string) {
	c.t.Helper()
	if got := c.frames(); got != frames {
		c.t.Errorf("got  %s\nwant %s", got, frames)
	}
}

func hello(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }

// What a client does wrong ends its request or its connection, with the code of RFC 9113.
func TestWrongFrames(t *testing.T) {
	t.Parallel()
	block := func(c *raw, id uint32) http2.HeadersFrameParam {
		return http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0x82, 0x87, 0x84, 0x41, 1, 'h'}, EndHeaders: true, EndStream: true}
	}
	waits := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for name, c := range map[string]struct {
		do   func(c *raw)
		want string
	}{
		"even stream":         {func(c *raw) { c.ok(c.WriteHeaders(block(c, 2))) }, "GOAWAY 0 0 PROTOCOL_ERROR"},
		"lower stream":        {func(c *raw) { c.request(5, true, "GET"); c.request(3, true, "GET") }, "GOAWAY 0 5 STREAM_CLOSED"},
		"data of no stream":   {func(c *raw) { c.ok(c.WriteData(1, true, nil)) }, "GOAWAY 0 0 PROTOCOL_ERROR"},
		"data after the end":  {func(c *raw) { c.request(1, true, "GET"); c.ok(c.WriteData(1, true, nil)) }, "RST_STREAM 1 STREAM_CLOSED"},
		"window of no stream": {func(c *raw) { c.ok(c.WriteWindowUpdate(1, 1)) }, "GOAWAY 0 0 PROTOCOL_ERROR"},
		"reset of no stream":  {func(c *raw) { c.ok(c.WriteRSTStream(1, http2.ErrCodeCancel)) }, "GOAWAY 0 0 PROTOCOL_ERROR"},
		"window too large":    {func(c *raw) { c.ok(c.WriteWindowUpdate(0, 1<<31-1)) }, "GOAWAY 0 0 FLOW_CONTROL_ERROR"},
		"stream's too large":  {func(c *raw) { c.request(1, true, "GET"); c.ok(c.WriteWindowUpdate(1, 1<<31-1)) }, "RST_STREAM 1 FLOW_CONTROL_ERROR"},
		"no increment":        {func(c *raw) { c.ok(c.WriteWindowUpdate(0, 0)) }, "GOAWAY 0 0 PROTOCOL_ERROR"},
		"own dependency":      {func(c *raw) { c.ok(c.WritePriority(1, http2.PriorityParam{StreamDep: 1})) }, "RST_STREAM 1 PROTOCOL_ERROR"},
		"push": {func(c *raw) {
			c.ok(c.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, EndHeaders: true}))
		}, "GOAWAY 0 0 PROTOCOL_ERROR"},
		"large frame": {func(c *raw) {
			c.ok(c.WriteRawFrame(http2.FramePing, 0, 0, make([]byte, frameSize)))
			c.nc.Write([]byte{0, 64, 1, 0, 0, 0, 0, 0, 1})
		}, "GOAWAY 0 0 FRAME_SIZE_ERROR"},
		"bad setting":       {func(c *raw) { c.ok(c.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 2})) }, "GOAWAY 0 0 PROTOCOL_ERROR"},
		"upper-case header": {func(c *raw) { c.request(1, true, "GET", "X-A", "1") }, "RST_STREAM 1 PROTOCOL_ERROR"},
		"no path":           {func(c *raw) { p := block(c, 1); p.BlockFragment = []byte{0x82, 0x87}; c.ok(c.WriteHeaders(p)) }, "RST_STREAM 1 PROTOCOL_ERROR"},
		"bad block":         {func(c *raw) { p := block(c, 1); p.BlockFragment = []byte{0x80}; c.ok(c.WriteHeaders(p)) }, "GOAWAY 0 0 COMPRESSION_ERROR"},
		"length of nothing": {func(c *raw) { c.request(1, true, "GET", "content-length", "1") }, "RST_STREAM 1 PROTOCOL_ERROR"},
		"body too long": {func(c *raw) {
			c.request(1, false, "POST", "content-length", "1")
			c.ok(c.WriteData(1, false, make([]byte, 2)))
		}, "RST_STREAM 1 PROTOCOL_ERROR"},
		"body too short": {func(c *raw) {
			c.request(1, false, "POST", "content-length", "3")
			c.ok(c.WriteData(1, true, make([]byte, 2)))
		}, "RST_STREAM 1 PROTOCOL_ERROR"},
		"more than the window":   {func(c *raw) { c.request(1, false, "POST"); c.fill(1, 64<<10+1) }, "RST_STREAM 1 FLOW_CONTROL_ERROR"},
		"trailers within":        {func(c *raw) { c.request(1, false, "POST"); c.request(1, false, "POST") }, "RST_STREAM 1 PROTOCOL_ERROR"},
		"header of a connection": {func(c *raw) { c.request(1, true, "GET", "connection", "close") }, "HEADERS 1 400, DATA 1 END"},
		"large header": {func(c *raw) {
			c.request(1, true, "GET", "a", strings.Repeat("x", 40<<10), "b", strings.Repeat("x", 40<<10))
		}, "HEADERS 1 431, DATA 1 END"},
		"unknown frame": {func(c *raw) { c.ok(c.WriteRawFrame(77, 0, 1, nil)) }, ""},
		"ping":          {func(c *raw) { c.ok(c.WritePing(false, [8]byte{1})); c.ok(c.WritePing(true, [8]byte{1})) }, "PING 0"},
		"goaway":        {func(c *raw) { c.ok(c.WriteGoAway(0, 0, nil)) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client := greeted(t, waits)
				c.do(client)
				got := client.frames()
				if got != c.want {
					t.Errorf("got  %s\nwant %s", got, c.want)
				}
				if strings.HasPrefix(c.want, "GOAWAY") {
					time.Sleep(lingerTime + lastTime)
					synctest.Wait()
					select {
					case <-client.over:
					default:
						t.Error("the connection is still open")
					}
				}
			})
		})
	}
}

// fill sends a body.
func (c *raw) fill(id uint32, n int) {
	for n > 0 {
		size := min(n, frameSize)
		c.ok(c.WriteData(id, false, make([]byte, size)))
		n -= size
	}
}

// A client that says nothing, something else, or only half of it, is not kept.
func TestNoGreeting(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"nothing": "", "half": http2.ClientPreface[:10], "preface": http2.ClientPreface, "http/1.1": "GET / HTTP/1.1\r\nHost: x\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := dial(t, hello)
				go c.nc.Write([]byte(text))
				start := time.Now()
				<-c.over
				if took := time.Since(start); took > greetTime+lastTime+lingerTime {
					t.Errorf("closed after %v", took)
				}
			})
		})
	}
}

// A connection without requests ends after the server's IdleTimeout; one with a request does not.
func TestIdleConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := greeted(t, func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		})
		c.request(1, true, "GET")
		time.Sleep(10 * time.Minute)
		c.want("HEADERS 1 200")
		c.ok(c.WriteRSTStream(1, http2.ErrCodeCancel))
		time.Sleep(59 * time.Second)
		c.want("")
		time.Sleep(time.Minute)
		c.want("GOAWAY 0 1 NO_ERROR")
		<-c.over
	})
}

// A response stops at what the client takes, and other ones go on.
func TestWindows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := greeted(t, func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 40_000)) }, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 30_000})
		c.request(1, true, "GET")
		c.want("HEADERS 1 200, DATA 1, DATA 1")
		c.request(3, true, "GET")
		c.want("HEADERS 3 200, DATA 3, DATA 3")
		if c.data[1] != 30_000 || c.data[3] != 30_000 {
			t.Errorf("sent %v", c.data)
		}
		c.ok(c.WriteWindowUpdate(3, 10_000)) // the connection has 5,535 left
		c.want("DATA 3")
		c.ok(c.WriteWindowUpdate(1, 10_000))
		c.request(5, true, "HEAD")
		c.want("HEADERS 5 200 END")
		c.ok(c.WriteWindowUpdate(0, 100_000))
		c.want("DATA 3, DATA 3 END, DATA 1, DATA 1 END")
		if c.data[1] != 40_000 || c.data[3] != 40_000 {
			t.Errorf("sent %v", c.data)
		}
		c.request(7, true, "GET")
		c.frames()
		c.ok(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 35_000})) // also of streams that there are
		c.frames()
		c.ok(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 50_000}))
		c.frames()
		if c.data[7] != 40_000 {
			t.Errorf("sent %v", c.data)
		}
	})
}

// While a client does not read, a bounded amount waits, whoever writes it; when it reads again, each stream has its turn.
func TestClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		wrote := 0
		c := greeted(t, func(w http.ResponseWriter, r *http.Request) {
			for range 100 {
				n, _ := w.Write(make([]byte, 3000)) // is kept, and sent with the next one
				m, err := w.Write(make([]byte, 8<<10-3000))
				if err != nil {
					return
				}
				mu.Lock()
				wrote += n + m
				mu.Unlock()
			}
		}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
		c.ok(c.WriteWindowUpdate(0, 1<<30))
		c.frames()
		c.hold(true)
		for i := range uint32(50) {
			c.request(2*i+1, true, "GET")
		}
		synctest.Wait()
		mu.Lock()
		if most := 3*outSize + 50*(8<<10); wrote > most {
			t.Errorf("%d bytes wait, want at most %d", wrote, most)
		}
		mu.Unlock()
		go func() { // answers wait, too, and then nothing more is read
			for range 10_000 {
				if c.WritePing(false, [8]byte{}) != nil {
					return
				}
			}
		}()
		synctest.Wait()
		c.hold(false)
		c.frames()
		if len(c.data) != 50 {
			t.Errorf("%d streams of 50 were served", len(c.data))
		}
		for id, n := range c.data {
			if n != 800<<10 {
				t.Errorf("stream %d has %d bytes", id, n)
			}
		}
	})
}

// Streams that write at the same time take turns: none is starved while others have more.
func TestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := greeted(t, func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				w.Write(make([]byte, 10<<10))
			}
		}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
		for i := range uint32(20) {
			c.request(2*i+1, true, "GET")
		}
		synctest.Wait()
		for range 500 { // the client lets them send in small parts
			c.ok(c.WriteWindowUpdate(0, 10<<10))
			synctest.Wait()
		}
		least, most := 1<<30, 0
		for i := range uint32(20) {
			least, most = min(least, c.data[2*i+1]), max(most, c.data[2*i+1])
		}
		if least < most*3/4 {
			t.Errorf("one stream has %d bytes, another one %d", least, most)
		}
		for i := range uint32(20) {
			c.ok(c.WriteRSTStream(2*i+1, http2.ErrCodeCancel))
		}
		c.ok(c.WriteWindowUpdate(0, 1<<20)) // nobody is left who would wait for a turn
		c.request(99, true, "GET")
		synctest.Wait()
		if c.data[99] < 1<<20 {
			t.Errorf("a stream after those that were reset has %d bytes", c.data[99])
		}
		c.ok(c.WriteRSTStream(99, http2.ErrCodeCancel))
	})
}

// More requests than allowed are refused, also if the client resets those before: their handlers may still run.
func TestTooManyRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, most := 0, 0
		ends := make(chan struct{})
		c := greeted(t, func(http.ResponseWriter, *http.Request) {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			<-ends // whatever the client does
			mu.Lock()
			running--
			mu.Unlock()
		})
		id := uint32(1)
		for range 100 {
			c.request(id, true, "GET")
			id += 2
		}
		c.want("")
		c.request(id, true, "GET")
		c.want(fmt.Sprintf("RST_STREAM %d REFUSED_STREAM", id))
		for i := uint32(1); i < id; i += 2 {
			c.ok(c.WriteRSTStream(i, http2.ErrCodeCancel))
		}
		for range 1000 {
			id += 2
			c.request(id, true, "GET")
			c.ok(c.WriteRSTStream(id, http2.ErrCodeCancel))
		}
		synctest.Wait()
		if most != 200 {
			t.Errorf("%d handlers ran, want 200", most)
		}
		close(ends)
		synctest.Wait()
		c.frames()
		if running != 0 {
			t.Errorf("%d handlers still run", running)
		}
		c.request(id+2, true, "GET")
		c.want(fmt.Sprintf("HEADERS %d 200 END", id+2))
	})
}

// Bodies that nobody reads block neither other ones nor the connection; what is read may be sent again.
func TestBodies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ends := make(chan struct{})
		c := greeted(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut {
				<-ends
				return
			}
			n, err := io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, n, err)
		})
		for i := range uint32(10) {
			c.request(2*i+1, false, "PUT")
			c.fill(2*i+1, 64<<10)
		}
		c.want("")
		c.request(21, false, "POST")
		for range 100 {
			c.fill(21, 32<<10)
			synctest.Wait()
		}
		c.ok(c.WriteData(21, true, nil))
		if got := c.frames(); !strings.HasSuffix(got, "HEADERS 21 200, DATA 21 END") {
			t.Error(got)
		}
		close(ends)
		if got := c.frames(); strings.Count(got, "200 END") != 10 || strings.Count(got, "NO_ERROR") != 10 {
			t.Error(got)
		}
		c.ok(c.WriteData(1, false, make([]byte, 1000))) // was on its way
		c.want("RST_STREAM 1 STREAM_CLOSED")
		for i := range uint32(100) { // the room of the unread bodies is there again
			c.request(2*i+23, false, "POST")
			c.fill(2*i+23, 32<<10)
			c.ok(c.WriteData(2*i+23, true, nil))
			synctest.Wait()
		}
		if got := c.frames(); strings.Count(got, "END") != 100 {
			t.Error(got)
		}
	})
}

// Bodies in frames of one byte do not take more memory than others.
func TestSmallFrames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := greeted(t, func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			n, err := io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, n, err)
		})
		c.request(1, false, "POST")
		for range 10_000 {
			c.ok(c.WriteDataPadded(1, false, []byte{1}, make([]byte, 3)))
		}
		c.ok(c.WriteData(1, true, nil))
		time.Sleep(2 * time.Second)
		if got := c.frames(); !strings.HasSuffix(got, "HEADERS 1 200, DATA 1 END") {
			t.Error(got)
		}
	})
}

// A response that the client does not read in time is reset.
func TestWriteDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		over := make(chan error, 1)
		c := greeted(t, func(w http.ResponseWriter, r *http.Request) {
			http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute))
			_, err := w.Write(make([]byte, 100_000))
			over <- err
			<-r.Context().Done()
		})
		c.request(1, true, "GET")
		time.Sleep(59 * time.Second)
		c.want("HEADERS 1 200, DATA 1, DATA 1, DATA 1, DATA 1, DATA 1") // the window is a little more than four records of TLS
		time.Sleep(2 * time.Second)
		c.want("RST_STREAM 1 INTERNAL_ERROR")
		if err := <-over; err == nil || err.Error() != "i/o timeout" {
			t.Error(err)
		}
	})
}

// A response that outlives its handler is resumed by others. What it has reserved it writes without waiting, whatever else is written
// meanwhile, and it does not keep more.
func TestOutlives(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out *response
		var resume func()
		steps, left := 0, 0
		c := greeted(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				w.Write(make([]byte, 40_000))
				return
			}
			w.(http.Flusher).Flush()
			out = w.(*response)
			resume = out.Outlive(func() bool { steps++; return steps == 3 }, func() { left++ })
		})
		c.ok(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 100_000}))
		c.request(1, true, http.MethodGet)
		if c.want("HEADERS 1 200"); steps != 1 {
			t.Errorf("%d steps, want 1", steps)
		}
		if out.Reserve(65535) || !out.Reserve(50_000) || !out.Reserve(50_000) {
			t.Error("the window of the connection is 65,535 bytes")
		}
		c.request(3, true, http.MethodPost)
		c.want("HEADERS 3 200, DATA 3")
		wrote := make(chan error, 1)
		go func() {
			_, err := out.Write(make([]byte, 50_000))
			wrote <- err
		}()
		synctest.Wait()
		if len(wrote) != 1 || <-wrote != nil {
			t.Error("a write waits that has reserved what it needs")
		}
		c.frames()
		c.ok(out.FlushError())
		c.want("DATA 3")
		if got := c.data[1] + c.data[3]; c.data[1] != 50_000 || got != 65535 {
			t.Errorf("%v, want all of the connection's window", c.data)
		}
		c.ok(c.WriteWindowUpdate(0, 1<<20))
		c.want("DATA 3, DATA 3, DATA 3 END")
		resume()
		c.want("")
		resume()
		c.want("DATA 1 END")

		steps = 0
		c.request(5, true, http.MethodGet)
		c.frames()
		c.ok(c.WriteRSTStream(5, http2.ErrCodeCancel))
		if c.want(""); left != 1 {
			t.Errorf("told %d times that the client has left", left)
		}
		resume()
		resume()
		c.want("")
	})
}

// A server that stops tells its clients, answers what runs, and begins nothing.
func TestRetires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := greeted(t, func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Minute)
			io.WriteString(w, "late")
		})
		c.request(1, true, "GET")
		synctest.Wait()
		c.ok(c.srv.Shutdown(t.Context()))
		c.want("GOAWAY 0 1 NO_ERROR")
		c.request(3, true, "GET")
		time.Sleep(2 * time.Minute)
		c.want("HEADERS 1 200, DATA 1 END")
		<-c.over
	})
}

// A panic within the connection's own goroutines ends only that.
func TestPanicOfWriter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		srv := &http.Server{HTTP2: limits()}
		s := &Server{srv: srv, conns: map[*conn]struct{}{}}
		s.serve(t.Context(), panicking{here}, nil)
	})
}

type panicking struct{ net.Conn }

func (panicking) Write([]byte) (int, error) { panic("boom") }

// FuzzFrames sends anything after the preface: nothing panics, and nothing is left.
func FuzzFrames(f *testing.F) {
	f.Add([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 6, 1, 5, 0, 0, 0, 1, 0x82, 0x87, 0x84, 0x41, 1, 'h'})
	f.Add([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 6, 1, 4, 0, 0, 0, 1, 0x83, 0x87, 0x84, 0x41, 1, 'h', 0, 0, 2, 0, 1, 0, 0, 0, 1, 1, 2})
	f.Fuzz(func(t *testing.T, frames []byte) {
		synctest.Test(t, func(t *testing.T) {
			c := dial(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
			go func() {
				c.nc.Write([]byte(http2.ClientPreface))
				c.nc.Write(frames)
				c.nc.Close()
			}()
			<-c.over
		})
	})
}
