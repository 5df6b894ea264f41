// Package ssh gives clients SSH into the guest: GET /ssh and POST /ssh of docs/reference/agent-protocol.md. The protocol
// itself is in sshserver, a process for each connection.
package ssh

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"sync"

	"golang.org/x/crypto/ssh"

	"coppice/agent/internal/api"
	"coppice/agent/internal/execution"
	"coppice/agent/internal/process"
	"coppice/agent/internal/sshserver"
)

// server is this program again. The kernel resolves the path in the new process, which is still this program.
var server = process.Program{Path: "/proc/self/exe", Argv: []string{"coppice-ssh", sshserver.Argument}}

// Service opens connections and has the guest's host key, which it makes when it is first needed. Most sandboxes never
// need one, and templates must not have one.
type Service struct {
	executions *execution.Service

	mu        sync.Mutex
	machineID string
	key       ed25519.PrivateKey
}

// New returns a Service.
func New(executions *execution.Service) *Service { return &Service{executions: executions} }

// KeepFor drops the host key of another sandbox, from which this guest was copied. A sandbox keeps its own through
// hibernation.
func (s *Service) KeepFor(machineID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.machineID != machineID {
		s.machineID, s.key = machineID, nil
	}
}

func (s *Service) hostKey() (ed25519.PrivateKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.key != nil {
		return s.key, nil
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	s.key = key
	return key, err
}

// Key answers GET /ssh.
func (s *Service) Key(w http.ResponseWriter, _ *http.Request) error {
	key, err := s.hostKey()
	if err != nil {
		return err
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		return err
	}
	public := signer.PublicKey()
	api.WriteJSON(w, http.StatusOK, struct {
		HostKey string `json:"host_key"`
	}{public.Type() + " " + base64.StdEncoding.EncodeToString(public.Marshal())})
	return nil
}

// Open answers POST /ssh.
func (s *Service) Open(w http.ResponseWriter, r *http.Request) error {
	key, err := s.hostKey()
	if err != nil {
		return err
	}
	return s.executions.ServeProgram(w, r, server, key.Seed())
}
