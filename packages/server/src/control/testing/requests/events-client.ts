/** Clients of `GET /v1/events`: pages, and a stream. */
import assert from 'node:assert/strict';
import type { EventFrame, EventRecord } from '@coppice/contract';
import { waitFor, type CallOptions, type ControlHarness } from '../control-harness.ts';

export const typesOf = (events: readonly { type: string }[]): string[] => events.map(({ type }) => type);
export const isEvent = (frame: EventFrame): frame is EventRecord => 'timestamp' in frame;

export async function listEvents(
  harness: ControlHarness,
  query = '',
  options: CallOptions = {},
): Promise<EventRecord[]> {
  const answer = await harness.call('GET', `/v1/events${query}`, options);
  assert.equal(answer.status, 200, JSON.stringify(answer.body));
  return answer.body;
}

/** Waits for the newest event of a type. */
export async function waitForEvent(harness: ControlHarness, type: string, query = ''): Promise<EventRecord> {
  let found: EventRecord | undefined;
  await waitFor(`the event ${type}`, async () => {
    found = (await listEvents(harness, `?type=${type}${query}&limit=500`)).at(-1);
    return found !== undefined;
  });
  assert.ok(found);
  return found;
}

/** An open stream, whose frames wait to be read. */
export class EventsClient implements AsyncDisposable {
  readonly frames: EventFrame[] = [];
  readonly ids: number[] = [];
  isOver = false;
  readonly #stop = new AbortController();
  readonly #done: Promise<void>;

  constructor(harness: ControlHarness, query: string, { headers = {}, ...rest }: CallOptions = {}) {
    const options = {
      ...rest,
      headers: { accept: 'text/event-stream', ...headers },
      signal: this.#stop.signal,
    };
    this.#done = this.#read(harness, query, options).catch(() => undefined);
  }

  async wait(what: string, fits: (frame: EventFrame) => boolean): Promise<EventFrame> {
    let found: EventFrame | undefined;
    await waitFor(what, () => (found = this.frames.find(fits)) !== undefined);
    assert.ok(found);
    return found;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#done;
  }

  async #read(harness: ControlHarness, query: string, options: CallOptions): Promise<void> {
    const response = await harness.fetch('GET', `/v1/events${query}`, options);
    assert.equal(response.status, 200);
    assert.ok(response.body);
    const decoder = new TextDecoder();
    let text = '';
    for await (const chunk of response.body) {
      const blocks = (text + decoder.decode(chunk, { stream: true })).split('\n\n');
      text = blocks.pop() ?? '';
      for (const block of blocks) this.#take(block);
    }
    this.isOver = true;
  }

  #take(block: string): void {
    const id = /^id: (\d+)$/m.exec(block)?.[1];
    const data = /^data: (.*)$/m.exec(block)?.[1];
    if (id !== undefined) this.ids.push(Number(id));
    if (data !== undefined) this.frames.push(JSON.parse(data) as EventFrame);
  }
}
