/** Another tenant with an open stream and an open shell, which must not notice an attack on the service. */
import assert from 'node:assert/strict';
import { FRAME } from '../../lib/protocol/frames.ts';
import { waitFor, type ControlHarness } from './control-harness.ts';
import type { FakeCommand, FakeProcess } from './fakes/fake-runner.ts';
import { SocketClient } from './requests/socket-client.ts';

interface Parts {
  command: FakeCommand;
  stream: ReadableStreamDefaultReader<string>;
  shell: FakeProcess;
  socket: SocketClient;
}

export class Bystander {
  readonly #parts: Parts;
  #said = 0;

  private constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** Opens the stream and the shell. Replaces the runner's `onExec` and `onShell` for a moment. */
  static async open(harness: ControlHarness): Promise<Bystander> {
    const apiKey = await harness.addOrganization();
    const { runner } = harness;
    const created = await harness.call('POST', '/v1/runs', { apiKey, body: { image: 'node:22-slim' } });
    const { id } = created.body as { id: string };
    const { onExec, onShell } = runner;
    const command = Promise.withResolvers<FakeCommand>();
    const shell = Promise.withResolvers<FakeProcess>();
    Object.assign(runner, { onExec: command.resolve, onShell: shell.resolve });
    const answer = await harness.fetch('POST', `/v1/runs/${id}/exec/stream`, {
      apiKey,
      body: { command: 'x', timeout: 3600 },
    });
    const socket = new SocketClient(harness, `/v1/runs/${id}/shell`, { key: apiKey });
    await socket.send({ type: 'shell_run', id: 'a', command: 'x' });
    assert.ok(answer.body);
    const stream = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const parts = { command: await command.promise, stream, shell: await shell.promise, socket };
    Object.assign(runner, { onExec, onShell });
    return new Bystander(parts);
  }

  /** Throws unless both connections still carry what the guest writes. */
  async assertUndisturbed(): Promise<void> {
    const { command, stream, shell, socket } = this.#parts;
    const text = `still here ${(this.#said += 1)}`;
    command.stdout(text);
    const event = JSON.stringify({ type: 'stdout', data: text });
    let seen = '';
    await waitFor('output of the other tenant', async () => {
      const { value, done } = await stream.read();
      assert.equal(done, false, `the stream of the other tenant ended: ${seen}`);
      seen += value;
      return seen.includes(event);
    });
    shell.send(FRAME.stdout, text);
    await waitFor('the shell of the other tenant', () => socket.received.some(({ data }) => data === text));
  }
}
