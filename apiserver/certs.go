package apiserver

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/access/auth"
	"monopod/apiserver/access/certscmd"
	"monopod/apiserver/codec"
)

// certs answers a GET with the certificates in use; a POST makes those that are
// signed, and the tokens, anew first. It is for admins.
func (s *Server) certs(w http.ResponseWriter, r *http.Request) {
	if s.Access == nil {
		s.notFound(w, r)
		return
	}
	if !slices.Contains(auth.UserOf(r.Context()).Groups, auth.Masters) {
		s.out.Fail(w, r, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("certificates are for admins")))
		return
	}
	if r.Method == http.MethodPost {
		if err := s.Access.Rotate(); err != nil {
			s.out.Fail(w, r, err)
			return
		}
		s.Log.Info("certificates and tokens are new")
	}
	s.out.Send(w, r, codec.Format{}, http.StatusOK, codec.Indented(s.Access.Certificates()))
}

// Certificates are those in use.
func (a *Access) Certificates() []certscmd.Certificate {
	c := a.current.Load()
	all := []certscmd.Certificate{
		certscmd.Of("server", c.serving.Leaf), certscmd.Of("admin", c.admin.Leaf),
	}
	for rest := a.CA; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return all
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, certscmd.Of("authority", cert))
		}
	}
}
