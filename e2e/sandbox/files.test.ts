import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { promisify } from 'node:util';
import type { Api } from '../fixtures/api/api.ts';
import { API_KEY } from '../fixtures/service/service.ts';
import { NODE_IMAGE, shared } from '../fixtures/service/shared.ts';

/** POSTs a form with curl. */
async function curl(address: string, fields: readonly string[]): Promise<{ status: number; body: unknown }> {
  const { stdout } = await promisify(execFile)('curl', [
    '-sS',
    '--max-time',
    '60',
    '-w',
    '\n%{http_code}',
    '-H',
    `Authorization: Bearer ${API_KEY}`,
    ...fields.flatMap((field) => ['-F', field]),
    address,
  ]);
  const [body = '', status] = stdout.split('\n');
  return { status: Number(status), body: JSON.parse(body) as unknown };
}

const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

describe('files', () => {
  let api: Api;
  let id: string;
  before(async () => {
    ({ api } = await shared());
    ({ id } = await api.create({ image: NODE_IMAGE }));
  });
  after(async () => {
    await api.destroy(id);
  });
  const url = (operation: string, path: string, more = ''): string =>
    `/v1/runs/${id}/${operation}?path=${encodeURIComponent(path)}${more}`;
  const upload = (path: string, bytes: Uint8Array<ArrayBuffer>, more = '') =>
    api.call('POST', url('files/upload', path, more), { raw: bytes });
  const download = async (path: string, headers: Record<string, string> = {}) => {
    const response = await api.fetch('GET', url('files/download', path), { headers });
    return { response, bytes: new Uint8Array(await response.arrayBuffer()) };
  };

  it('uploads and downloads bytes unchanged, from none to many', async () => {
    for (const size of [0, 1, 65_537, 20_000_000]) {
      const bytes = new Uint8Array(randomBytes(size));
      const answer = await upload(`/workspace/new/dir/f${size}`, bytes);
      assert.deepEqual([answer.status, answer.body], [200, { path: `/workspace/new/dir/f${size}`, size }]);
      const inside = await api.exec(id, `sha256sum < /workspace/new/dir/f${size}`);
      assert.equal(inside.stdout.split(' ')[0], sha256(bytes));
      const { response, bytes: back } = await download(`/workspace/new/dir/f${size}`);
      assert.deepEqual([response.status, response.headers.get('content-length')], [200, String(size)]);
      assert.equal(sha256(back), sha256(bytes));
    }
  });

  it('sets the requested mode', async () => {
    await upload('/tmp/tool.sh', new TextEncoder().encode('#!/bin/sh\necho ran\n'), '&mode=755');
    assert.equal((await api.exec(id, '/tmp/tool.sh')).stdout, 'ran\n');
  });

  it('serves one range', async () => {
    await upload('/tmp/range', new TextEncoder().encode('0123456789'));
    const part = await download('/tmp/range', { range: 'bytes=2-4' });
    assert.deepEqual(
      [part.response.status, part.response.headers.get('content-range')],
      [206, 'bytes 2-4/10'],
    );
    assert.equal(new TextDecoder().decode(part.bytes), '234');
    assert.equal((await download('/tmp/range', { range: 'bytes=50-' })).response.status, 416);
  });

  it('lists a directory', async () => {
    await api.exec(
      id,
      'mkdir -p /tmp/list/sub && cd /tmp/list && printf abc > file && ln -s file link && chmod 640 file',
    );
    const answer = await api.call('GET', url('files', '/tmp/list'));
    const entries = (answer.body as unknown as Record<string, unknown>[]).map(({ mtime, ...rest }) => {
      assert.match(String(mtime), /^\d{4}-\d\d-\d\dT[\d:]+\.\d{3}Z$/u);
      return rest;
    });
    assert.deepEqual(
      entries.find((entry) => entry['name'] === 'file'),
      { name: 'file', path: '/tmp/list/file', type: 'file', size: 3, mode: '0640' },
    );
    assert.equal(entries.find((entry) => entry['name'] === 'link')?.['target'], 'file');
    assert.equal(entries.find((entry) => entry['name'] === 'sub')?.['type'], 'dir');
  });

  it('leaves nothing of an aborted upload', async () => {
    const leave = new AbortController();
    let sent = 0;
    const body = new ReadableStream<Uint8Array>({
      async pull(controller) {
        sent += 1;
        if (sent > 40) leave.abort();
        else controller.enqueue(new Uint8Array(65_536));
      },
    });
    await assert.rejects(
      api.fetch('POST', url('files/upload', '/tmp/broken/file'), { raw: body, signal: leave.signal }),
    );
    const left = await api.exec(
      id,
      'for i in $(seq 50); do n=$(find /tmp/broken -type f 2>/dev/null | wc -l); [ $n = 0 ] && break; sleep 0.1; done; echo $n',
    );
    assert.equal(left.stdout.trim(), '0');
  });

  it('answers 507 when the disk of the sandbox is full, and the sandbox continues', async () => {
    const small = await api.create({ image: 'coppice/base:1', disk_mib: 64, mem_mib: 256 });
    const path = `/v1/runs/${small.id}/files/upload?path=/workspace/big`;
    const answer = await api.call('POST', path, { raw: new Uint8Array(100 * 1024 * 1024) });
    assert.equal(answer.status, 507, answer.text);
    assert.equal((await api.exec(small.id, 'ls -A /workspace; echo ok')).stdout, 'ok\n');
    await api.destroy(small.id);
  });

  it('reads kernel files to their end', async () => {
    for (const path of [
      '/proc/version',
      '/sys/class/net/lo/mtu',
      '/proc/sys/kernel/ostype',
      '/proc/kallsyms',
    ]) {
      const inside = await api.exec(id, `sha256sum < ${path}`, { user: 'root' });
      const { response, bytes } = await download(path);
      assert.equal(response.status, 200, path);
      assert.equal(sha256(bytes), inside.stdout.split(' ')[0], `${path}: ${bytes.length} bytes`);
      const isShort = bytes.length < 262_144;
      assert.equal(response.headers.get('content-length'), isShort ? String(bytes.length) : null, path);
      const head = await api.fetch('HEAD', url('files/download', path));
      assert.equal(head.status, 200, path);
    }
    const part = await download('/proc/version', { range: 'bytes=0-4' });
    assert.deepEqual([part.response.status, new TextDecoder().decode(part.bytes)], [206, 'Linux']);
  });

  it('answers a failing file at once with a 4xx and its errno', async () => {
    const failing: [path: string, says: string][] = [
      ['/proc/self/mem', '(EIO)'],
      ['/proc/kmsg', '(EAGAIN)'],
      ['/etc/passwd/below', '(ENOTDIR)'],
      [`/tmp/${'x'.repeat(300)}`, '(ENAMETOOLONG)'],
      ['/tmp/loop', '(ELOOP)'],
      ['/tmp/fifo', 'pipe'],
      ['/dev/zero', 'device'],
    ];
    await api.exec(id, 'cd /tmp && ln -s loop loop; mkfifo fifo');
    for (const [path, says] of failing) {
      const answer = await api.call('GET', url('files/download', path));
      assert.equal(answer.status, 400, `${path}: ${answer.text}`);
      assert.ok(answer.text.includes(says), `${path}: ${answer.text}`);
      assert.equal((await api.fetch('HEAD', url('files/download', path))).status, 400);
    }
    const list = await api.call('GET', url('files', '/tmp/loop'));
    assert.deepEqual([list.status, list.text.includes('(ELOOP)')], [400, true], list.text);
    await api.exec(id, 'mkdir /tmp/ro && mount -t tmpfs -o ro none /tmp/ro', { user: 'root' });
    const put = await upload('/tmp/ro/x', new Uint8Array(1));
    assert.deepEqual([put.status, put.text.includes('(EROFS)')], [400, true], put.text);
  });

  it('does not complete the download of a file that shrinks meanwhile', async () => {
    await api.exec(id, 'head -c 200000000 /dev/zero > /tmp/shrinks');
    const response = await api.fetch('GET', url('files/download', '/tmp/shrinks'));
    assert.equal(response.headers.get('content-length'), '200000000');
    await api.exec(id, 'truncate -s 1000 /tmp/shrinks');
    await assert.rejects(response.arrayBuffer());
  });

  it('stores the file of a form sent by curl', async () => {
    const bytes = randomBytes(5_000_000);
    const directory = await mkdtemp(join(tmpdir(), 'coppice-form-'));
    try {
      const file = join(directory, 'a file.bin');
      await writeFile(file, bytes);
      const send = (path: string, ...fields: string[]) => curl(`${api.service.address}${path}`, fields);
      const stored = await send(url('files/upload', '/tmp/form'), `file=@${file}`);
      assert.deepEqual(stored, { status: 200, body: { path: '/tmp/form', size: bytes.length } });
      assert.equal(sha256((await download('/tmp/form')).bytes), sha256(bytes));
      const log = (await api.call('GET', `/v1/runs/${id}/audit`)).text;
      assert.match(log, /"event":"file.upload","data":\{"path":"\/tmp\/form","size":5000000\}/u);
      for (const fields of [['path=/tmp/x'], [`other=@${file}`], [`file=@${file}`, 'mode=755']]) {
        const refused = await send(url('files/upload', '/tmp/none/x'), ...fields);
        assert.equal(refused.status, 400, fields.join(' '));
      }
      assert.equal((await api.exec(id, 'find /tmp/none -type f 2>/dev/null | wc -l')).stdout.trim(), '0');
    } finally {
      await rm(directory, { recursive: true });
    }
  });

  it('gives a file and its new directories to the named user', async () => {
    await upload('/srv/owned/deep/file', new Uint8Array(1), '&user=node&mode=640');
    await upload('/srv/owned/root', new Uint8Array(1));
    const { stdout } = await api.exec(id, 'cd /srv/owned && stat -c "%n %U:%G %a" . deep deep/file root');
    assert.equal(
      stdout,
      '. node:node 755\ndeep node:node 755\ndeep/file node:node 640\nroot root:root 644\n',
    );
    const unknown = await upload('/srv/x', new Uint8Array(1), '&user=nobody-here');
    assert.deepEqual([unknown.status, unknown.text.includes('user:')], [400, true], unknown.text);
  });

  it('lists a long directory page by page', async () => {
    await api.exec(id, 'mkdir /tmp/many && cd /tmp/many && seq -w 2500 | xargs touch', { timeout: 60 });
    const names: string[] = [];
    let pages = 0;
    for (let next: string | undefined = url('files', '/tmp/many'); next !== undefined; pages += 1) {
      const page = await api.call('GET', next);
      names.push(...(page.body as unknown as { name: string }[]).map(({ name }) => name));
      next = /^<([^>]*)>; rel="next"$/u.exec(page.headers.get('link') ?? '')?.[1];
    }
    assert.equal(pages, 3);
    assert.deepEqual(
      names,
      Array.from({ length: 2500 }, (_, index) => String(index + 1).padStart(4, '0')),
    );
  });

  it('refuses invalid requests with a clear 4xx', async () => {
    const refused: [method: string, path: string, status: number, says: string][] = [
      ['GET', url('files/download', '/no/such'), 404, 'file_not_found'],
      ['GET', url('files/download', '/tmp'), 400, 'director'],
      ['GET', url('files', '/no/such'), 404, 'file_not_found'],
      ['GET', url('files', '/etc/passwd'), 400, 'director'],
      ['GET', `/v1/runs/${id}/files/download`, 400, 'path'],
      ['GET', `/v1/runs/${id}/files/download?path=a%00b`, 400, 'path'],
      ['GET', `/v1/runs/${id}/files/download?path=`, 400, 'path'],
      ['GET', `/v1/runs/${id}/files?path=/tmp&depth=3`, 400, 'depth'],
      ['POST', `/v1/runs/${id}/files/upload?path=%00`, 400, 'path'],
      ['POST', `/v1/runs/${id}/files/upload?path=/tmp`, 400, 'regular file'],
      ['POST', `/v1/runs/${id}/files/upload?path=/tmp/x&mode=999`, 400, 'mode'],
    ];
    for (const [method, path, status, says] of refused) {
      const answer = await api.call(method, path, method === 'POST' ? { raw: 'x' } : {});
      assert.equal(answer.status, status, `${method} ${path}: ${answer.text}`);
      assert.ok(answer.text.includes(says), `${method} ${path}: ${answer.text}`);
    }
  });
});
