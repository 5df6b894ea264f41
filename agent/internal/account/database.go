// Package account resolves the user that a process runs as, from the guest's own /etc/passwd and /etc/group: there is
// no libc to ask, and these files belong to the guest.
package account

import (
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"coppice/agent/internal/guestfile"
)

// maxDatabaseBytes bounds how much of each file is read.
const maxDatabaseBytes = 4 << 20

// User is a line of /etc/passwd.
type User struct {
	Name     string
	UID, GID uint32
	Home     string
}

// Group is a line of /etc/group.
type Group struct {
	Name    string
	GID     uint32
	Members []string
}

// Database holds the lines of both files that could be parsed.
type Database struct {
	Users  []User
	Groups []Group
}

// Load reads the files below root. A file that is missing, or whose path leads nowhere, counts as empty.
func Load(root string) (Database, error) {
	passwd, err := readIfPresent(filepath.Join(root, "etc/passwd"))
	if err != nil {
		return Database{}, err
	}
	group, err := readIfPresent(filepath.Join(root, "etc/group"))
	if err != nil {
		return Database{}, err
	}
	return Database{Users: ParsePasswd(passwd), Groups: ParseGroup(group)}, nil
}

func readIfPresent(path string) ([]byte, error) {
	content, err := guestfile.ReadBounded(path, maxDatabaseBytes)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
		return nil, nil
	}
	return content, err
}

// ParsePasswd returns the lines that name a user with two numbers. It skips other lines, as libc does.
func ParsePasswd(content []byte) []User {
	var users []User
	eachLine(content, func(fields []string) {
		if len(fields) < 4 || fields[0] == "" {
			return
		}
		uid, uidErr := parseID(fields[2])
		gid, gidErr := parseID(fields[3])
		if uidErr != nil || gidErr != nil {
			return
		}
		user := User{Name: fields[0], UID: uid, GID: gid}
		if len(fields) > 5 {
			user.Home = fields[5]
		}
		users = append(users, user)
	})
	return users
}

// ParseGroup returns the lines that name a group with a number. It skips other lines.
func ParseGroup(content []byte) []Group {
	var groups []Group
	eachLine(content, func(fields []string) {
		if len(fields) < 3 || fields[0] == "" {
			return
		}
		gid, err := parseID(fields[2])
		if err != nil {
			return
		}
		group := Group{Name: fields[0], GID: gid}
		if len(fields) > 3 && fields[3] != "" {
			group.Members = strings.Split(fields[3], ",")
		}
		groups = append(groups, group)
	})
	return groups
}

func eachLine(content []byte, visit func(fields []string)) {
	for len(content) > 0 {
		line, rest, _ := bytes.Cut(content, []byte("\n"))
		content = rest
		text := strings.TrimSpace(string(line))
		if text != "" && text[0] != '#' {
			visit(strings.Split(text, ":"))
		}
	}
}

// parseID accepts 0 to 2^32-2: the highest number means "leave unchanged" to the kernel.
func parseID(text string) (uint32, error) {
	id, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, err
	}
	if id == 1<<32-1 {
		return 0, strconv.ErrRange
	}
	return uint32(id), nil
}
