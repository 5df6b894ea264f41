/** USER, WORKDIR and ENV of images, in sandboxes made from a real registry. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertFilesWork, assertRefused, withImage } from '../fixtures/images/image-kind.ts';
import type { LayerEntry } from '../fixtures/images/oci-layout.ts';

test('USER may be a number or a name, either with a group', async () => {
  const accounts: LayerEntry[] = [
    { path: 'etc/passwd', content: 'root:x:0:0::/root:/bin/sh\napp:x:1001:1002::/home/app:/bin/sh\n' },
    { path: 'etc/group', content: 'root:x:0:\napp:x:1002:\nstaff:x:50:app\n' },
  ];
  const expected: Record<string, string> = {
    '4321': '4321 0 0',
    app: '1001 1002 1002 50',
    '7:staff': '7 50 50',
  };
  for (const [index, [User, ids]] of Object.entries(expected).entries()) {
    await withImage(`user-${index}`, { entries: accounts, config: { User } }, async (api, id) => {
      const { stdout } = await api.exec(id, 'echo $(id -u) $(id -g) $(id -G)');
      assert.equal(stdout, `${ids}\n`, User);
    });
  }
});

test('uploads belong to the USER of the image, who can change and run them', async () => {
  const accounts: LayerEntry[] = [
    { path: 'etc/passwd', content: 'root:x:0:0::/root:/bin/sh\napp:x:1001:1002::/home/app:/bin/sh\n' },
  ];
  await withImage('user-uploads', { entries: accounts, config: { User: 'app' } }, async (api, id) => {
    const path = `/v1/runs/${id}/files/upload?path=/srv/new/tool.sh`;
    const put = await api.call('POST', `${path}&mode=700`, { raw: '#!/bin/sh\nid -u\n' });
    assert.equal(put.status, 200, put.text);
    const look =
      'stat -c "%u:%g %a" /srv/new /srv/new/tool.sh && /srv/new/tool.sh && echo more >> /srv/new/tool.sh';
    const { stdout, stderr } = await api.exec(id, look);
    assert.equal(stdout, '1001:1002 755\n1001:1002 700\n1001\n', stderr);
    assert.equal((await api.call('POST', `${path}&user=0`, { raw: 'x' })).status, 200);
    assert.equal((await api.exec(id, 'stat -c "%u:%g %a" /srv/new/tool.sh')).stdout, '0:0 700\n');
  });
});

test('a USER that the image lacks is refused as a fault of the image, and a request can override it', async () => {
  await withImage('user-absent', { config: { User: 'nobody-here' } }, async (api, id) => {
    await assertRefused(api, id, {}, /USER "nobody-here".*"user".*\/etc\/passwd/u);
    assert.equal((await api.exec(id, 'id -u', { user: '0' })).stdout, '0\n');
    await assertFilesWork(api, id);
  });
});

test('a missing WORKDIR is created, a relative one starts at the root, a file is refused', async () => {
  await withImage('workdir-missing', { config: { WorkingDir: '/srv/deep/down' } }, async (api, id) => {
    assert.equal((await api.exec(id, 'pwd')).stdout, '/srv/deep/down\n');
  });
  await withImage('workdir-relative', { config: { WorkingDir: 'srv/app' } }, async (api, id) => {
    assert.equal((await api.exec(id, 'pwd')).stdout, '/srv/app\n');
  });
  const entries = [{ path: 'srv', content: 'a file' }];
  await withImage('workdir-file', { entries, config: { WorkingDir: '/srv' } }, async (api, id) => {
    await assertRefused(api, id, {}, /\/srv is not a directory|working directory \/srv/u);
    assert.equal((await api.exec(id, 'pwd', { cwd: '/bin' })).stdout, '/bin\n');
  });
});

test('unusual values of ENV arrive unchanged', async () => {
  const values: Record<string, string> = {
    EMPTY: '',
    EQUALS: 'a=b=c',
    LINES: 'one\ntwo',
    QUOTES: `"'\\$HOME\``,
    UMLAUT: 'größe ✓',
    'odd.name-1': 'x',
    LONG: 'y'.repeat(60_000),
  };
  const config = { Env: ['PATH=/bin', ...Object.entries(values).map(([name, value]) => `${name}=${value}`)] };
  await withImage('env', { config }, async (api, id) => {
    const { stdout } = await api.exec(id, 'cat /proc/$$/environ; :');
    const found = new Map(
      stdout.split('\0').map((line) => [line.split('=', 1)[0], line.slice(line.indexOf('=') + 1)]),
    );
    for (const [name, value] of Object.entries(values)) assert.equal(found.get(name), value, name);
  });
});
