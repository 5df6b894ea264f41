import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseHierarchies, readProcTexts } from './hierarchies.ts';

const mount = (root: string, mountPoint: string, type: string, options: string): string =>
  `31 23 0:28 ${root} ${mountPoint} rw,nosuid shared:4 - ${type} ${type} ${options}`;

test('a version 2 host has one hierarchy, whose controllers are read from the tree later', () => {
  const found = parseHierarchies({
    mountinfo: mount('/', '/sys/fs/cgroup', 'cgroup2', 'rw,nsdelegate'),
    cgroup: '0::/system.slice/coppice.service\n',
  });
  assert.deepEqual(found, [
    {
      version: 2,
      controllers: [],
      mountPoint: '/sys/fs/cgroup',
      ownDirectory: '/sys/fs/cgroup/system.slice/coppice.service',
    },
  ]);
});

test('a version 1 host has one for each mount with a useful controller; others are ignored', () => {
  const found = parseHierarchies({
    mountinfo: [
      '22 1 0:20 / /sys rw - sysfs sysfs rw',
      mount('/', '/sys/fs/cgroup/cpu,cpuacct', 'cgroup', 'rw,cpu,cpuacct'),
      mount('/', '/sys/fs/cgroup/memory', 'cgroup', 'rw,memory'),
      mount('/', '/sys/fs/cgroup/freezer', 'cgroup', 'rw,freezer'),
      mount('/', '/sys/fs/cgroup/systemd', 'cgroup', 'rw,xattr,name=systemd'),
    ].join('\n'),
    cgroup: '9:name=systemd:/s\n4:memory:/m\n3:freezer:/f\n1:cpu,cpuacct:/c/d\n',
  });
  assert.deepEqual(
    found.map(({ version, controllers, ownDirectory }) => [version, controllers.join(','), ownDirectory]),
    [
      [1, 'cpu,cpuacct', '/sys/fs/cgroup/cpu,cpuacct/c/d'],
      [1, 'memory', '/sys/fs/cgroup/memory/m'],
    ],
  );
});

test('a hybrid host has both', () => {
  const found = parseHierarchies({
    mountinfo: [
      mount('/', '/sys/fs/cgroup/pids', 'cgroup', 'rw,pids'),
      mount('/', '/sys/fs/cgroup/unified', 'cgroup2', 'rw'),
    ].join('\n'),
    cgroup: '8:pids:/\n0::/\n',
  });
  assert.deepEqual(
    found.map(({ version, ownDirectory }) => [version, ownDirectory]),
    [
      [1, '/sys/fs/cgroup/pids/'],
      [2, '/sys/fs/cgroup/unified/'],
    ],
  );
});

test('if a container mounts a part of the tree, the path is relative to that part', () => {
  const found = parseHierarchies({
    mountinfo: mount('/docker/abc', '/sys/fs/cgroup/memory', 'cgroup', 'ro,memory'),
    cgroup: '4:memory:/docker/abc/inner\n',
  });
  assert.equal(found[0]?.ownDirectory, '/sys/fs/cgroup/memory/inner');
});

test('a group outside the mounted part is not found, not even one with a similar name', () => {
  for (const path of ['/elsewhere', '/docker/abcdef', '/../other']) {
    const found = parseHierarchies({
      mountinfo: mount('/docker/abc', '/sys/fs/cgroup/memory', 'cgroup', 'rw,memory'),
      cgroup: `4:memory:${path}\n`,
    });
    assert.deepEqual(found, [], path);
  }
});

test('escaped blanks in a path are decoded, and a second mount of the same hierarchy is ignored', () => {
  const found = parseHierarchies({
    mountinfo: [
      mount('/', String.raw`/mnt/my\040groups`, 'cgroup2', 'rw'),
      mount('/', '/again', 'cgroup2', 'rw'),
    ].join('\n'),
    cgroup: '0::/a b\n',
  });
  assert.deepEqual(
    found.map(({ ownDirectory }) => ownDirectory),
    ['/mnt/my groups/a b'],
  );
});

test('a host without control groups has no hierarchy, and this host can be read', () => {
  assert.deepEqual(parseHierarchies({ mountinfo: '', cgroup: '' }), []);
  assert.ok(Array.isArray(parseHierarchies(readProcTexts())));
});
