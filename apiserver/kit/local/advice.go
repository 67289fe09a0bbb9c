package local

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/spelling"
)

// monopodPaths begins the paths that a Kubernetes other than Monopod does not have.
const monopodPaths = "/monopod/"

// explain says what to do about a connection that fails.
func (s *Server) explain(err error) error {
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return fmt.Errorf("%w: %s is of another installation, or older than the certificates; copy admin.kubeconfig again",
			err, s.from)
	case errors.As(err, new(x509.HostnameError)):
		return fmt.Errorf("%w: use an address that the certificate names, or add this one with serve --tls-san", err)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("%w: check the clocks of both machines; a Monopod that runs renews its certificates by itself", err)
	case errors.As(err, new(tls.RecordHeaderError)),
		strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return fmt.Errorf("%w: the address in %s is not that of a Kubernetes API, which speaks HTTPS", err, s.from)
	case errors.As(err, new(*net.DNSError)):
		return fmt.Errorf("%w: check the name of the server in %s, and the machine's DNS", err, s.from)
	case errors.As(err, new(*net.OpError)):
		return fmt.Errorf("%w: check that monopod runs there, and that %s has its address", err, s.from)
	}
	return err
}

// advise says what to do about an answer.
func (s *Server) advise(err *apierrors.StatusError) error {
	switch {
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w: the credentials in %s are not valid any more; copy admin.kubeconfig again", err, s.from)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: use the kubeconfig of an admin, or run the command on the machine itself with --data-dir", err)
	case err.ErrStatus.Code == http.StatusInsufficientStorage:
		return fmt.Errorf("%w: free space on the disk of the server; deleting objects and images works all the same", err)
	case apierrors.IsTooManyRequests(err):
		return fmt.Errorf("%w: wait a moment and try again", err)
	case apierrors.IsServiceUnavailable(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err):
		return fmt.Errorf("%w: try again; monopod status says what the server lacks", err)
	}
	return err
}

// elsewhere says where an object that was not found may be: in another namespace, under a similar name, or how to list
// what there is.
func (s *Server) elsewhere(ctx context.Context, missing *metav1.StatusDetails) string {
	switch {
	case missing == nil || missing.Kind == "" || missing.Name == "":
		return ""
	case missing.Group == "" && missing.Kind == "images":
		return "monopod images ls lists the images of the node"
	}
	resource := missing.Kind
	if missing.Group != "" {
		resource += "." + missing.Group
	}
	listed := fmt.Sprintf("kubectl get %s --all-namespaces lists what there is", resource)
	var near []string
	for _, found := range s.named(ctx, missing) {
		at := ""
		if found.Namespace != "" {
			at = " --namespace=" + found.Namespace
		}
		if found.Name == missing.Name {
			return fmt.Sprintf("there is one in another namespace: add%s", at)
		}
		if spelling.Similar(found.Name, missing.Name) {
			near = append(near, found.Name+at)
		}
	}
	if len(near) == 0 {
		return listed
	}
	slices.Sort(near)
	return fmt.Sprintf("did you mean %s? %s", near[0], listed)
}

// maxNamed is the number of objects among which a name is looked for.
const maxNamed = 2000

// named lists the metadata of all objects of a kind; none if that fails.
func (s *Server) named(ctx context.Context, of *metav1.StatusDetails) (found []metav1.ObjectMeta) {
	at := "/api/v1"
	if of.Group != "" {
		var group metav1.APIGroup
		if s.raw(ctx, "/apis/"+url.PathEscape(of.Group), &group) != nil {
			return nil
		}
		at = "/apis/" + group.PreferredVersion.GroupVersion
	}
	var list metav1.PartialObjectMetadataList
	if s.raw(ctx, fmt.Sprintf("%s/%s?limit=%d", at, url.PathEscape(of.Kind), maxNamed), &list) != nil {
		return nil
	}
	for _, item := range list.Items {
		found = append(found, item.ObjectMeta)
	}
	return found
}

// raw reads what an advice needs: an error is only that.
func (s *Server) raw(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json")
	resp, err := s.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return json.NewDecoder(http.MaxBytesReader(nil, resp.Body, maxAnswer)).Decode(into)
}
