/**
 * Finds this process's place in the host's control groups, from /proc. Hosts differ: version 2 has one tree for all
 * controllers, version 1 has a tree for one or several controllers, and hybrid hosts have both. In a container the
 * mount may show only a part of the tree, and the path may be relative to another root.
 */
import { readFileSync } from 'node:fs';
import { posix } from 'node:path';

const CONTROLLERS = ['cpu', 'cpuacct', 'memory', 'pids'] as const;
export type Controller = (typeof CONTROLLERS)[number];

export interface Hierarchy {
  version: 1 | 2;
  /** Controllers of version 1. Those of version 2 are listed in the tree, as a parent enables them for its children. */
  controllers: readonly Controller[];
  mountPoint: string;
  /** Directory of this process's own group. */
  ownDirectory: string;
}

export interface ProcTexts {
  /** /proc/self/mountinfo */
  mountinfo: string;
  /** /proc/self/cgroup */
  cgroup: string;
}

export function readProcTexts(): ProcTexts {
  return {
    mountinfo: readFileSync('/proc/self/mountinfo', 'utf8'),
    cgroup: readFileSync('/proc/self/cgroup', 'utf8'),
  };
}

interface Mount {
  root: string;
  mountPoint: string;
  type: string;
  superOptions: readonly string[];
}

interface Membership {
  controllers: readonly string[];
  path: string;
}

/** Returns the hierarchies in which this process's group is visible. It may still not be writable. */
export function parseHierarchies({ mountinfo, cgroup }: ProcTexts): Hierarchy[] {
  const memberships = cgroup.split('\n').flatMap(parseMembership);
  const found = mountinfo
    .split('\n')
    .flatMap(parseMount)
    .flatMap((mount) => locate(mount, memberships));
  const seen = new Set<string>();
  return found.filter(({ version, controllers }) => {
    const key = version === 2 ? 'v2' : controllers.join(',');
    return !seen.has(key) && seen.add(key);
  });
}

/** `36 35 98:0 /root /mnt rw,noatime shared:1 - cgroup cgroup rw,memory` */
function parseMount(line: string): Mount[] {
  const [before = '', after = ''] = line.split(' - ', 2);
  const fields = before.split(' ');
  const [type = '', , superOptions = ''] = after.split(' ');
  const [root, mountPoint] = [fields[3], fields[4]];
  if (root === undefined || mountPoint === undefined || !['cgroup', 'cgroup2'].includes(type)) return [];
  return [
    { root: unescape(root), mountPoint: unescape(mountPoint), type, superOptions: superOptions.split(',') },
  ];
}

/** `4:memory:/path`; `0::/path` for version 2. */
function parseMembership(line: string): Membership[] {
  const match = /^\d+:([^:]*):(\/.*)$/u.exec(line);
  if (match?.[1] === undefined || match[2] === undefined) return [];
  return [{ controllers: match[1] === '' ? [] : match[1].split(','), path: match[2] }];
}

function locate(mount: Mount, memberships: readonly Membership[]): Hierarchy[] {
  const version = mount.type === 'cgroup2' ? 2 : 1;
  const controllers = CONTROLLERS.filter((each) => version === 1 && mount.superOptions.includes(each));
  if (version === 1 && controllers.length === 0) return [];
  const own = memberships.find((each) =>
    version === 2
      ? each.controllers.length === 0
      : controllers.every((name) => each.controllers.includes(name)),
  );
  const inside = own === undefined ? undefined : findInside(mount.root, own.path);
  if (inside === undefined) return [];
  const { mountPoint } = mount;
  return [{ version, controllers, mountPoint, ownDirectory: posix.join(mountPoint, inside) }];
}

/** Returns the path below the mount, or undefined if the group is not in the mounted part. */
function findInside(root: string, path: string): string | undefined {
  if (path.split('/').includes('..') || root.split('/').includes('..')) return undefined;
  if (root === '/') return path;
  if (path === root) return '/';
  return path.startsWith(`${root}/`) ? path.slice(root.length) : undefined;
}

/** Decodes the octal escapes that the kernel uses for blanks in paths. */
function unescape(path: string): string {
  return path.replaceAll(/\\([0-7]{3})/gu, (_, digits: string) =>
    String.fromCodePoint(Number.parseInt(digits, 8)),
  );
}
