package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/images"
)

// Handler serves images.Path. admin returns nil while the node does not exist.
func Handler(admin func(context.Context) *Admin) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := admin(r.Context())
		if s == nil {
			fail(w, r, apierrors.NewServiceUnavailable("the node is still starting"))
			return
		}
		q := r.URL.Query()
		if r.Method == http.MethodGet && q.Has("save") {
			save(w, r, s)
			return
		}
		answer, err := s.answer(r)
		if err != nil {
			fail(w, r, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer) // the client may have left
	})
}

func (s *Admin) answer(r *http.Request) (any, error) {
	q := r.URL.Query()
	switch {
	case r.Method == http.MethodGet && q.Has("downloads"):
		return s.downloads(r.Context())
	case r.Method == http.MethodGet:
		list, err := s.List(r.Context())
		return images.List{Images: list}, err
	case r.Method == http.MethodDelete:
		force, _ := strconv.ParseBool(q.Get("force")) // anything else is no
		if len(q["name"]) == 0 {
			return nil, apierrors.NewBadRequest("the parameter name is required")
		}
		return metav1.Status{Status: metav1.StatusSuccess}, s.Remove(r.Context(), q["name"], force)
	case q.Has("pull"):
		return s.Pull(r.Context(), q.Get("pull"))
	}
	names, err := s.Import(r.Context(), r.Body)
	return images.Imported{Names: names}, err
}

// save streams an archive. After an error in the middle it aborts the response, so that the client notices that the
// archive is incomplete.
func save(w http.ResponseWriter, r *http.Request, s *Admin) {
	w.Header().Set("Content-Type", images.Archive)
	out := &countingWriter{w: w}
	err := s.Save(r.Context(), r.URL.Query()["save"], out)
	switch {
	case err != nil && out.n > 0:
		panic(http.ErrAbortHandler)
	case err != nil:
		writeError(w, err)
	}
}

// countingWriter counts the bytes that are written.
type countingWriter struct {
	w http.ResponseWriter
	n int64
}

// Write implements io.Writer.
func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// fail responds with a Status after it has read the rest of the archive: a client that is still sending when the server
// closes the connection gets a broken pipe instead of the response.
func fail(w http.ResponseWriter, r *http.Request, err error) {
	_, _ = io.Copy(io.Discard, r.Body) // the client may have left
	writeError(w, err)
}

// writeError responds with a Status.
func writeError(w http.ResponseWriter, err error) {
	apiErr := apierrors.APIStatus(nil)
	if !errors.As(err, &apiErr) {
		text := err.Error()
		if s, ok := status.FromError(err); ok {
			text = s.Message()
		}
		apiErr = apierrors.NewInternalError(errors.New(text))
	}
	s := apiErr.Status()
	s.Kind, s.APIVersion = "Status", "v1"
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(s.Code))
	_ = json.NewEncoder(w).Encode(s) // the client may have left
}
