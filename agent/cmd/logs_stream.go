package cmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/kit/local"
)

// stream is the log of one container.
type stream struct {
	pod        *corev1.Pod
	container  string
	withPrefix bool // each line begins with the pod and the container
	out        *lineWriter
}

// lineWriter writes whole lines of several streams.
type lineWriter struct {
	mu  sync.Mutex // guards out; held while a line is written
	out io.Writer
}

func (l *lineWriter) write(prefix string, line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := io.WriteString(l.out, prefix); err != nil {
		return err
	}
	_, err := l.out.Write(line)
	return err
}

// copy prints the log until it ends.
func (s *stream) copy(ctx context.Context, server *local.Server, q url.Values) error {
	at := path("/api/v1", s.pod.Namespace, "pods", s.pod.Name) + "/log?" + q.Encode()
	resp, err := server.Do(ctx, http.MethodGet, at, nil)
	if err != nil {
		if apierrors.IsBadRequest(err) { // the container waits, or it has no previous instance
			return fmt.Errorf("%w; ask: monopod why pod/%s -n %s", err, s.pod.Name, s.pod.Namespace)
		}
		return err
	}
	defer resp.Body.Close()
	if !s.withPrefix {
		_, err := io.Copy(s.out.out, resp.Body)
		return err
	}
	return s.eachLine(resp.Body)
}

// eachLine prints lines with the pod and the container before them. A very long one is printed in pieces.
func (s *stream) eachLine(from io.Reader) error {
	prefix := fmt.Sprintf("[%s/%s] ", s.pod.Name, s.container)
	in := bufio.NewReaderSize(from, 64<<10)
	for {
		line, err := in.ReadSlice('\n')
		if len(line) > 0 {
			if line[len(line)-1] != '\n' {
				line = append(line[:len(line):len(line)], '\n')
			}
			if err := s.out.write(prefix, line); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}
