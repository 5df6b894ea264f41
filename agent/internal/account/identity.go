package account

import (
	"strconv"
	"strings"

	"coppice/agent/internal/fault"
)

// Identity is the user that a process runs as.
type Identity struct {
	UID, GID uint32
	// Groups are the supplementary groups.
	Groups []uint32
	// Name is the login name, or the number of a user without a name.
	Name string
	Home string
}

// Resolve parses the USER of an image: name, uid, name:group, uid:gid; "" is root. A number needs no entry in the
// files. As with other container runtimes, a named group replaces the supplementary ones.
func (d Database) Resolve(spec string) (Identity, error) {
	if strings.ContainsRune(spec, 0) {
		return Identity{}, fault.Invalid("user: must not contain NUL")
	}
	userPart, groupPart, hasGroup := strings.Cut(spec, ":")
	if userPart == "" {
		userPart = "0"
	}
	who, err := d.resolveUser(userPart)
	if err != nil {
		return Identity{}, err
	}
	if !hasGroup || groupPart == "" {
		who.Groups = d.groupsOf(who.Name)
		return who, nil
	}
	who.GID, err = d.resolveGroup(groupPart)
	return who, err
}

// ImageOwner returns the owner of what is made for the image's USER, in the guest with the given root. It returns root
// if the image does not have that user, or has a device as its /etc/passwd: exec reports both.
func ImageOwner(root, imageUser string) Identity {
	accounts, err := Load(root)
	if err != nil {
		return Identity{}
	}
	owner, err := accounts.Resolve(imageUser)
	if err != nil {
		return Identity{}
	}
	return owner
}

func (d Database) resolveUser(text string) (Identity, error) {
	id, numberErr := parseID(text)
	for _, user := range d.Users {
		if user.Name == text {
			return identityOf(user), nil
		}
	}
	if numberErr != nil {
		return Identity{}, fault.Invalid("user: %q is not in the sandbox's /etc/passwd; use a name from it or a number", text)
	}
	for _, user := range d.Users {
		if user.UID == id {
			return identityOf(user), nil
		}
	}
	if id == 0 {
		return Identity{Name: "root", Home: "/root"}, nil
	}
	return Identity{UID: id, Name: strconv.FormatUint(uint64(id), 10), Home: "/"}, nil
}

func identityOf(user User) Identity {
	home := user.Home
	if home == "" {
		home = "/"
	}
	return Identity{UID: user.UID, GID: user.GID, Name: user.Name, Home: home}
}

func (d Database) resolveGroup(text string) (uint32, error) {
	for _, group := range d.Groups {
		if group.Name == text {
			return group.GID, nil
		}
	}
	id, err := parseID(text)
	if err != nil {
		return 0, fault.Invalid("user: group %q is not in the sandbox's /etc/group; use a name from it or a number", text)
	}
	return id, nil
}

// maxSupplementary is the kernel's NGROUPS_MAX.
const maxSupplementary = 65536

func (d Database) groupsOf(user string) []uint32 {
	var ids []uint32
	for _, group := range d.Groups {
		for _, member := range group.Members {
			if member == user && len(ids) < maxSupplementary {
				ids = append(ids, group.GID)
				break
			}
		}
	}
	return ids
}
