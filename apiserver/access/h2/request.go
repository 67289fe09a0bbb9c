package h2

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
)

// request is a request and who answers it.
type request struct {
	*http.Request
	handler http.Handler
}

// begin makes the request of a header block. An error resets the stream. c.mu is held.
func (st *stream) begin(f *http2.MetaHeadersFrame) (*request, error) {
	var method, scheme, path, authority string
	for _, field := range f.PseudoFields() {
		switch field.Name {
		case ":method":
			method = field.Value
		case ":scheme":
			scheme = field.Value
		case ":path":
			path = field.Value
		case ":authority":
			authority = field.Value
		}
	}
	malformed := http2.StreamError{StreamID: st.id, Code: http2.ErrCodeProtocol}
	handler := st.c.s.srv.Handler
	target := &url.URL{Host: authority}
	switch {
	case f.Truncated:
		handler = refusal(http.StatusRequestHeaderFieldsTooLarge, "the headers of the request are too large")
		target = &url.URL{Path: "/"}
	case method == http.MethodConnect:
		if scheme != "" || path != "" || authority == "" {
			return nil, malformed
		}
		path = authority
	case path == "*" && method == http.MethodOptions: // of the server as a whole, as net/http answers it
		handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "0") })
	case method == "" || path == "" || path == "*" || scheme != "https" && scheme != "http":
		return nil, malformed
	default:
		var err error
		if target, err = url.ParseRequestURI(path); err != nil {
			return nil, malformed
		}
	}
	header := st.header(f)
	host := authority
	if host == "" {
		host = header.Get("Host")
	}
	delete(header, "Host")
	if wrong := specific(header); wrong != "" {
		handler = refusal(http.StatusBadRequest, wrong)
	}
	if err := st.announced(header); err != nil {
		return nil, malformed
	}
	ctx, cancel := context.WithCancel(st.c.ctx)
	st.cancel = cancel
	r := (&http.Request{
		Method: method, URL: target, RequestURI: path, Host: host, Header: header, RemoteAddr: st.c.remote, TLS: st.c.tls,
		Proto: "HTTP/2.0", ProtoMajor: 2, Body: http.NoBody, Trailer: trailers(header), ContentLength: max(st.length, 0),
	}).WithContext(ctx)
	if st.ended {
		st.bodyErr = http.ErrBodyReadAfterClose
	} else {
		b := &body{st: st}
		if r.Trailer != nil {
			b.request = r
		}
		r.Body, r.ContentLength = b, st.length
		if st.expects = strings.EqualFold(header.Get("Expect"), "100-continue"); st.expects {
			delete(header, "Expect")
		}
	}
	return &request{r, handler}, nil
}

// header returns the regular fields of a header block. Their values share an array.
func (st *stream) header(f *http2.MetaHeadersFrame) http.Header {
	fields := f.RegularFields()
	header := make(http.Header, len(fields))
	values := make([]string, 0, len(fields))
	for _, field := range fields {
		name := st.c.canonical(field.Name)
		switch had := header[name]; {
		case had == nil:
			values = append(values, field.Value)
			header[name] = values[len(values)-1 : len(values) : len(values)]
		case name == "Cookie": // may be sent in parts
			had[0] += "; " + field.Value
		default:
			header[name] = append(had, field.Value)
		}
	}
	return header
}

// announced takes the length of the body.
func (st *stream) announced(header http.Header) error {
	lengths := header["Content-Length"]
	if len(lengths) == 0 {
		return nil
	}
	n, err := strconv.ParseUint(lengths[0], 10, 63)
	if err != nil || len(lengths) > 1 || st.ended && n > 0 {
		return strconv.ErrSyntax
	}
	st.length = int64(n)
	return nil
}

// specific returns what is wrong with headers that are of one connection, which HTTP/2 does not have (RFC 9113, section 8.2.2).
func specific(header http.Header) string {
	for _, name := range []string{"Connection", "Proxy-Connection", "Keep-Alive", "Transfer-Encoding", "Upgrade"} {
		if _, ok := header[name]; ok {
			return "HTTP/2 has no header " + name
		}
	}
	if te := header["Te"]; len(te) > 0 && (len(te) > 1 || te[0] != "" && te[0] != "trailers") {
		return `with HTTP/2, the header TE can only be "trailers"`
	}
	return ""
}

// trailers returns the trailers that a client announces, without values, nil if there are none.
func trailers(header http.Header) http.Header {
	var all http.Header
	for _, value := range header["Trailer"] {
		for name := range strings.SplitSeq(value, ",") {
			switch name = http.CanonicalHeaderKey(strings.TrimSpace(name)); name {
			case "", "Transfer-Encoding", "Trailer", "Content-Length":
			default:
				if all == nil {
					all = http.Header{}
				}
				all[name] = nil
			}
		}
	}
	delete(header, "Trailer")
	return all
}

// refusal answers with an error.
func refusal(status int, text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, status) })
}
