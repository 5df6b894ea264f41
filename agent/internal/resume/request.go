package resume

import (
	"encoding/base64"
	"path"
	"strings"
	"time"

	"coppice/agent/internal/api"
	"coppice/agent/internal/clock"
	"coppice/agent/internal/fault"
	"coppice/agent/internal/guest"
	"coppice/agent/internal/network"
	"coppice/agent/internal/workspace"
)

// body is the request on the wire.
type body struct {
	Generation uint64 `json:"generation"`
	Entropy    string `json:"entropy"`
	clock.Fields
	Hostname  string                 `json:"hostname"`
	MachineID string                 `json:"machine_id"`
	Network   *network.Configuration `json:"network"`
	Env       map[string]string      `json:"env"`
	User      string                 `json:"user"`
	Workdir   string                 `json:"workdir"`
	DNSSearch []string               `json:"dns_search"`
	DiskBytes uint64                 `json:"disk_bytes"`
	Workspace *workspace.Disk        `json:"workspace"`
}

// Request is a validated body.
type Request struct {
	Generation uint64
	Entropy    []byte
	Time       clock.Told
	Hostname   string
	MachineID  string
	// Network is nil if the guest has none.
	Network   *network.Plan
	Settings  guest.Settings
	DNSSearch []string
	// DiskBytes is the new size of the scratch disk, or 0 if the disk still has the size with which it was saved.
	DiskBytes uint64
	// Workspace is the persistent disk to be mounted, or nil.
	Workspace *workspace.Disk
}

const (
	entropyBytes     = 64
	machineIDDigits  = 32
	maxHostnameBytes = 64
	maxSearchDomains = 6
)

func parse(text []byte, arrived time.Time) (Request, error) {
	var b body
	if err := api.DecodeJSON("body", text, &b); err != nil {
		return Request{}, err
	}
	r := Request{Generation: b.Generation, Hostname: b.Hostname, MachineID: b.MachineID, DNSSearch: b.DNSSearch, DiskBytes: b.DiskBytes}
	var err error
	if r.Generation == 0 {
		return Request{}, fault.Invalid("generation: must be a number from 1")
	}
	if r.Entropy, err = base64.StdEncoding.DecodeString(b.Entropy); err != nil || len(r.Entropy) != entropyBytes {
		return Request{}, fault.Invalid("entropy: must be %d bytes in base64", entropyBytes)
	}
	if r.Time, err = b.Fields.Parse(arrived); err != nil {
		return Request{}, err
	}
	if err := validateIdentity(r); err != nil {
		return Request{}, err
	}
	if b.Network != nil {
		plan, err := b.Network.Parse()
		if err != nil {
			return Request{}, err
		}
		r.Network = &plan
	}
	if r.Workspace = b.Workspace; r.Workspace != nil {
		if err := r.Workspace.Validate("workspace."); err != nil {
			return Request{}, err
		}
	}
	r.Settings, err = parseSettings(b)
	return r, err
}

func validateIdentity(r Request) error {
	if r.Hostname == "" || len(r.Hostname) > maxHostnameBytes || !isHostname(r.Hostname) {
		return fault.Invalid("hostname: must be 1 to %d letters, digits, dots and dashes", maxHostnameBytes)
	}
	if len(r.MachineID) != machineIDDigits || strings.Trim(r.MachineID, "0123456789abcdef") != "" {
		return fault.Invalid("machine_id: must be %d lower-case hex digits", machineIDDigits)
	}
	if len(r.DNSSearch) > maxSearchDomains {
		return fault.Invalid("dns_search: more than %d domains", maxSearchDomains)
	}
	for _, domain := range r.DNSSearch {
		if domain == "" || len(domain) > 253 || !isHostname(domain) {
			return fault.Invalid("dns_search: %q is not a domain name", domain)
		}
	}
	return nil
}

func isHostname(text string) bool {
	for _, c := range []byte(text) {
		isLetter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !isLetter && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_' {
			return false
		}
	}
	return true
}

func parseSettings(b body) (guest.Settings, error) {
	if err := guest.ValidateEnvironment(b.Env); err != nil {
		return guest.Settings{}, err
	}
	workdir := b.Workdir
	if workdir == "" {
		workdir = guest.DefaultDirectory
	}
	if !path.IsAbs(workdir) || strings.ContainsRune(workdir, 0) {
		return guest.Settings{}, fault.Invalid("workdir: %q is not an absolute path", b.Workdir)
	}
	return guest.Settings{Env: b.Env, User: b.User, Workdir: path.Clean(workdir)}, nil
}
