package audit

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/auth"
)

// event is an Event of audit.k8s.io/v1.
type event struct {
	Kind                     string            `json:"kind"`
	APIVersion               string            `json:"apiVersion"`
	Level                    Level             `json:"level"`
	AuditID                  string            `json:"auditID"`
	Stage                    Stage             `json:"stage"`
	RequestURI               string            `json:"requestURI"`
	Verb                     string            `json:"verb"`
	User                     userInfo          `json:"user"`
	ImpersonatedUser         *userInfo         `json:"impersonatedUser,omitempty"`
	SourceIPs                []string          `json:"sourceIPs,omitempty"`
	UserAgent                string            `json:"userAgent,omitempty"`
	ObjectRef                *reference        `json:"objectRef,omitempty"`
	ResponseStatus           *metav1.Status    `json:"responseStatus,omitempty"`
	RequestObject            json.RawMessage   `json:"requestObject,omitempty"`
	ResponseObject           json.RawMessage   `json:"responseObject,omitempty"`
	RequestReceivedTimestamp metav1.MicroTime  `json:"requestReceivedTimestamp"`
	StageTimestamp           metav1.MicroTime  `json:"stageTimestamp"`
	Annotations              map[string]string `json:"annotations,omitempty"`
}

type userInfo struct {
	Username string              `json:"username,omitempty"`
	UID      string              `json:"uid,omitempty"`
	Groups   []string            `json:"groups,omitempty"`
	Extra    map[string][]string `json:"extra,omitempty"`
}

type reference struct {
	Resource    string `json:"resource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
	APIGroup    string `json:"apiGroup,omitempty"`
	APIVersion  string `json:"apiVersion,omitempty"`
	Subresource string `json:"subresource,omitempty"`
}

func newEvent(a auth.Attributes, c Caller, level Level) event {
	e := event{
		Kind: "Event", APIVersion: apiVersion, Level: level, AuditID: c.ID, RequestURI: c.URI, Verb: a.Verb,
		User: infoOf(a.User), SourceIPs: c.SourceIPs, UserAgent: c.UserAgent,
	}
	if c.Actor != nil {
		as := e.User
		e.User, e.ImpersonatedUser = infoOf(*c.Actor), &as
	}
	if a.Path == "" {
		e.ObjectRef = &reference{
			Resource: a.Resource, Namespace: a.Namespace, Name: a.Name,
			APIGroup: a.Group, APIVersion: a.Version, Subresource: a.Subresource,
		}
	}
	return e
}

func infoOf(u auth.User) userInfo {
	return userInfo{Username: u.Name, UID: u.UID, Groups: u.Groups, Extra: u.Extra}
}
