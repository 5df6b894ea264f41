/**
 * Uses the client in the same way in every runtime. It needs only the platform: `fetch`, streams and WebSocket. Each step
 * returns a result for the test to compare; a step that throws returns the error instead. The test strips the types and
 * loads it in the runtime.
 */
import type * as Sdk from '../../src/index.ts';

export interface Place {
  baseUrl: string;
  apiKey: string;
  /** Whether `fetch` can send a stream: browsers can only over HTTP/2. */
  sendsStreams: boolean;
}

type Step = (sandbox: Sdk.Sandbox) => Promise<unknown>;

export async function runScenario(sdk: typeof Sdk, place: Place): Promise<Record<string, unknown>> {
  const { apiKey, baseUrl } = place;
  const client = new sdk.Coppice({ apiKey, baseUrl });
  const sandbox = await client.sandboxes.getOrCreate({ name: `scenario ${Math.random()}` });
  const report: Record<string, unknown> = {};
  for (const [name, step] of Object.entries(listSteps(sdk, client, place))) {
    try {
      report[name] = await step(sandbox);
    } catch (error) {
      report[name] = `threw ${String(error)}`;
    }
  }
  return report;
}

function listSteps(sdk: typeof Sdk, client: Sdk.Coppice, place: Place): Record<string, Step> {
  return { ...commandSteps(), ...fileSteps(place), ...streamSteps(), ...clientSteps(sdk, client) };
}

function commandSteps(): Record<string, Step> {
  return {
    exec: async (sandbox) => (await sandbox.exec('hello')).stdout,
    exitCode: async (sandbox) => (await sandbox.exec('exit 3')).exitCode,
    stdin: async (sandbox) => (await sandbox.exec('cat', { stdin: 'äöü' })).stdout,
    stream: async (sandbox) => {
      let text = '';
      for await (const { data } of sandbox.stream('hello')) text += data;
      return text;
    },
    detached: async (sandbox) => {
      const command = await sandbox.commands.start('hello');
      let text = '';
      for await (const chunk of command.output()) text += chunk.type === 'dropped' ? '' : chunk.data;
      return [text, (await command.wait()).exitCode];
    },
    abort: async (sandbox) => {
      const controller = new AbortController();
      const call = sandbox.exec('sleep 60', { signal: controller.signal });
      setTimeout(() => controller.abort(new Error('stopped')), 50);
      return call.catch((error: unknown) => String(error));
    },
    timeout: async (sandbox) => {
      const signal = AbortSignal.timeout(50);
      return sandbox.exec('sleep 60', { signal }).catch((error: unknown) => (error as Error).name);
    },
  };
}

function fileSteps({ sendsStreams }: Place): Record<string, Step> {
  const bytes = new Uint8Array([0, 255, 128, 10]);
  return {
    text: async (sandbox) => {
      await sandbox.upload('/workspace/text', '€uro\n');
      return sandbox.download('/workspace/text');
    },
    bytes: async (sandbox) => {
      await sandbox.upload('/workspace/bytes', bytes);
      return [...(await sandbox.downloadBytes('/workspace/bytes'))];
    },
    blob: async (sandbox) => (await sandbox.upload('/workspace/blob', new Blob([bytes, 'a']))).size,
    uploadStream: async (sandbox) => {
      const source = new ReadableStream<Uint8Array>({
        start(controller) {
          controller.enqueue(bytes);
          controller.enqueue(bytes);
          controller.close();
        },
      });
      if (!sendsStreams) return 8;
      return (await sandbox.upload('/workspace/stream', source)).size;
    },
    downloadStream: async (sandbox) => {
      const reader = (await sandbox.downloadStream('/workspace/bytes')).getReader();
      let size = 0;
      for (let next = await reader.read(); !next.done; next = await reader.read()) size += next.value.length;
      return size;
    },
    list: async (sandbox) => {
      const names: string[] = [];
      for await (const { name } of sandbox.listFiles('/workspace')) names.push(name);
      return names.includes('text');
    },
  };
}

function streamSteps(): Record<string, Step> {
  return {
    spawn: async (sandbox) => {
      const command = await sandbox.spawn('cat');
      await command.stdin.write('one\n');
      await command.stdin.write('two\n');
      await command.stdin.end();
      let text = '';
      for await (const { data } of command) text += data;
      return [text, (await command.wait()).exitCode];
    },
    shell: async (sandbox) => {
      const shell = await sandbox.shell();
      const results = await Promise.all([shell.run('a'), shell.run('b')]);
      await shell.close();
      return results.map(({ stdout, exitCode }) => [stdout, exitCode]);
    },
    terminal: async (sandbox) => {
      const terminal = await sandbox.terminal({ cols: 100, rows: 30 });
      terminal.resize(80, 24);
      await terminal.write('hi');
      await terminal.write('q');
      let size = 0;
      for await (const chunk of terminal) size += chunk.length;
      return [size, (await terminal.wait()).exitCode];
    },
  };
}

function clientSteps(sdk: typeof Sdk, client: Sdk.Coppice): Record<string, Step> {
  return {
    found: async (sandbox) => {
      const named = await client.sandboxes.getOrCreate({ name: sandbox.name ?? '' });
      return [named.id === sandbox.id, await client.sandboxes.get('run00000000000000000000')];
    },
    listed: async (sandbox) => {
      for await (const { id } of client.sandboxes.list()) if (id === sandbox.id) return true;
      return false;
    },
    fork: async (sandbox) => {
      const children = await sandbox.fork(2);
      const states = children.map(({ status }) => status);
      await Promise.all(children.map((child) => child.destroy()));
      return states;
    },
    audit: async (sandbox) => {
      let count = 0;
      for await (const { seq } of sandbox.audit()) count = seq;
      const { valid, ...verdict } = await sdk.verifyAudit(sandbox.audit(), 'not the secret of the team');
      return [count > 10, valid, 'message' in verdict];
    },
    error: async () =>
      client.sandboxes
        .create({ image: 'node:latest' })
        .catch((error: unknown) =>
          error instanceof sdk.CoppiceError ? [error.status, error.code] : String(error),
        ),
    printed: async (sandbox) => {
      const { Deno, Bun, process } = globalThis as unknown as Runtimes;
      const inspect = Deno?.inspect ?? Bun?.inspect ?? process?.getBuiltinModule?.('node:util').inspect;
      if (inspect === undefined) return 'as in the browser';
      const text = inspect(sandbox);
      return text.startsWith('Sandbox {') && text.includes(sandbox.id) ? 'as in the browser' : text;
    },
    destroyed: async (sandbox) => {
      await sandbox[Symbol.asyncDispose]();
      return (await sandbox.info()).status;
    },
  };
}

type Inspect = (value: unknown) => string;
interface Runtimes {
  Deno?: { inspect: Inspect };
  Bun?: { inspect: Inspect };
  process?: { getBuiltinModule?: (name: string) => { inspect: Inspect } };
}
