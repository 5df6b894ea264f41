/** Environment, directory, name and end of a sandbox, in real guests, over every way in which it continues. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { BASE_IMAGE } from '../../packages/server/src/lib/base-image.ts';
import type { Api } from '../fixtures/api/api.ts';
import { shared as openShared } from '../fixtures/service/shared.ts';
import { Shell } from '../fixtures/streams/shell.ts';
import { Terminal } from '../fixtures/streams/terminal.ts';

const CANARY = 'a-secret-of-the-environment';
const ENV = { TOKEN: CANARY, LANG: 'C', WITH: 'a b\n"$c"' };
const DIRECTORY = '/workspace/app';
const SHOW = 'pwd; echo "$TOKEN $LANG"; printf %s "$WITH" | od -An -c | tr -s " "';
const SHOWN = `${DIRECTORY}\n${CANARY} C\n a b \\n " $ c "\n`;

/** Returns the command lines and environments of all processes of the host that can be read. */
function readProcesses(): string {
  const texts: string[] = [];
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/u.test(name)))
    for (const file of ['cmdline', 'environ'])
      try {
        texts.push(readFileSync(join('/proc', pid, file), 'latin1'));
      } catch {
        // The process has ended meanwhile.
      }
  return texts.join('\n');
}

describe('the settings of a sandbox in its guest', () => {
  let shared: Awaited<ReturnType<typeof openShared>>;
  let api: Api;
  let id = '';
  let snapshot_id = '';
  const others: string[] = [];
  before(async () => {
    shared = await openShared();
    ({ api } = shared);
    const settings = { name: 'settings', env: ENV, cwd: DIRECTORY, timeout: 0 };
    ({ id } = await api.create({ image: BASE_IMAGE, mem_mib: 256, ...settings }));
  });
  after(async () => {
    for (const one of [id, ...others]) await api.destroy(one);
    await api.call('DELETE', `/v1/snapshots/${snapshot_id}`);
  });

  const assertShown = async (sandbox: string): Promise<void> =>
    assert.equal((await api.exec(sandbox, SHOW)).stdout, SHOWN);
  const post = async (path: string, body: object = {}): Promise<Record<string, unknown>> => {
    const answer = await api.call('POST', `/v1/runs/${path}`, { body });
    assert.ok(answer.status < 300, answer.text);
    return answer.body;
  };

  it('tells the caller to create a directory that is missing', async () => {
    const answer = await api.call('POST', `/v1/runs/${id}/exec`, { body: { command: 'true' } });
    assert.equal(answer.status, 400);
    assert.match(answer.text, /cwd: .*\/workspace\/app.*create the directory first/u);
    await api.exec(id, `mkdir ${DIRECTORY}`, { cwd: '/' });
  });

  it('gives commands, shells, terminals and detached commands directory and variables', async () => {
    await assertShown(id);
    const shell = await Shell.open(api, id);
    assert.equal(await shell.read(SHOW), SHOWN);
    shell.socket.close();
    const terminal = await Terminal.open(api, id);
    await terminal.ask('echo "<$TOKEN $LANG>" "in $PWD"', new RegExp(`<${CANARY} C> in ${DIRECTORY}\r`, 'u'));
    terminal.socket.close();
    const { id: command } = await post(`${id}/commands`, { command: SHOW, detached: false });
    const { body } = await api.call('GET', `/v1/runs/${id}/commands/${String(command)}/output`);
    const output = (body as { output: { data: string }[] }).output;
    assert.equal(output.map(({ data }) => data).join(''), SHOWN);
  });

  it('prefers what a command says itself', async () => {
    const own = { env: { LANG: 'C.UTF-8', MORE: '1' }, cwd: '/tmp' };
    const { stdout } = await api.exec(id, 'pwd; echo $TOKEN $LANG $MORE', own);
    assert.equal(stdout, `/tmp\n${CANARY} C.UTF-8 1\n`);
  });

  it('starts relative paths of files in the directory', async () => {
    const files = `/v1/runs/${id}/files`;
    const upload = await api.call('POST', `${files}/upload?path=src/a`, { raw: 'content' });
    assert.equal(upload.body['path'], `${DIRECTORY}/src/a`, upload.text);
    assert.equal((await api.exec(id, 'cat src/a')).stdout, 'content');
    assert.equal((await api.call('GET', `${files}/download?path=src/a`)).text, 'content');
    const listed = await api.call('GET', `${files}?path=src`);
    assert.match(listed.text, /"name":"a"/u);
  });

  it('keeps placeholders of granted credentials visible, though a variable has their name', async () => {
    const env = { OPENAI_API_KEY: 'hides-it', OTHER: '1' };
    const { id: granted } = await api.create({
      image: BASE_IMAGE,
      mem_mib: 256,
      env,
      credentials: { openai: 'sk-real' },
    });
    others.push(granted);
    const show = 'echo $OPENAI_API_KEY $OTHER';
    assert.match((await api.exec(granted, show)).stdout, /coppice-placeholder-.* 1\n/u);
    assert.equal((await api.exec(granted, show, { env: { OPENAI_API_KEY: 'own' } })).stdout, 'own 1\n');
  });

  it('carries them through fork, snapshot, restore, hibernation and rollback', async () => {
    const [child] = (await post(`${id}/fork`)) as unknown as { id: string; name: string | null }[];
    others.push(child!.id);
    assert.equal(child!.name, null);
    snapshot_id = String((await post(`${id}/snapshot`, { expires_in: 3600 }))['id']);
    const restored = String((await post('restore', { snapshot_id }))['id']);
    const changed = String((await post('restore', { snapshot_id, env: { TOKEN: 'new' }, cwd: '/' }))['id']);
    others.push(restored, changed);
    await post(`${id}/hibernate`);
    await post(`${id}/resume`);
    for (const one of [id, child!.id, restored]) await assertShown(one);
    assert.equal((await api.exec(changed, 'pwd; echo $TOKEN$WITH')).stdout, '/\nnew\n');
    await post(`${id}/rollback`, { snapshot_id });
    await assertShown(id);
  });

  it('keeps them when the service is killed and starts again', async () => {
    await shared.service.crash();
    await shared.service.launch();
    for (const one of [id, ...others.slice(1, 3)]) await assertShown(one);
    const { body } = await api.call('GET', '/v1/runs?name=settings');
    assert.deepEqual(
      (body as unknown as { id: string }[]).map((one) => one.id),
      [id],
    );
  });

  it('leaves values in no process, log and record of the host', async () => {
    const shell = await Shell.open(api, id);
    await shell.read('true');
    assert.ok(!readProcesses().includes(CANARY));
    shell.socket.close();
    assert.ok(!shared.service.output.includes(CANARY));
    const vms = join(shared.service.dataDir, 'runner');
    const records = readdirSync(vms, { recursive: true, encoding: 'utf8' }).filter((name) =>
      name.endsWith('.json'),
    );
    assert.ok(
      records.some((name) => name.endsWith('vm.json')),
      records.join(' '),
    );
    for (const name of records) assert.ok(!readFileSync(join(vms, name), 'utf8').includes(CANARY), name);
  });

  it('changes them for processes that are started later', async () => {
    const { body } = await api.call('PATCH', `/v1/runs/${id}`, { body: { env: { A: 'b' }, cwd: null } });
    assert.equal(body['cwd'], null);
    assert.equal((await api.exec(id, 'pwd; echo $A$TOKEN $LANG')).stdout, '/workspace\nb C.UTF-8\n');
  });

  it('ends the sandbox at the given time, though a command runs in it', async () => {
    const { id: ending } = await api.create({ image: BASE_IMAGE, mem_mib: 256, timeout: 0 });
    const running = api.call('POST', `/v1/runs/${ending}/exec`, {
      body: { command: 'sleep 100', timeout: 100 },
    });
    running.catch(() => undefined);
    const expires_at = new Date(Date.now() + 2000).toISOString();
    const { body } = await api.call('PATCH', `/v1/runs/${ending}`, { body: { expires_at } });
    assert.equal(body['ends_at'], expires_at);
    // Both clocks of the host are read, one after the other.
    assert.ok(Math.abs(Date.parse(String(body['expires_at'])) - Date.parse(expires_at)) < 50);
    await shared.service.waitFor(
      'its end',
      30_000,
      async () => (await api.get(ending))['status'] === 'destroyed',
    );
    const record = await api.get(ending);
    assert.equal(record['status_reason'], 'expires_at');
    assert.ok(Date.parse(String(record['ended_at'])) >= Date.parse(expires_at) - 100);
    await Promise.allSettled([running]);
  });
});
