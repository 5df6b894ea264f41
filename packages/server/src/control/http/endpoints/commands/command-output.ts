import { AppError, CommandEvent, CommandOutput, CommandOutputQuery } from '@coppice/contract';
import type { FastifyRequest } from 'fastify';
import type { ClientHttp2Stream } from 'node:http2';
import { readKeptOutput, type KeptOutput } from '../../../commands/kept-output.ts';
import { OutputText } from '../../../commands/output-text.ts';
import { readPage } from '../../../commands/output-page.ts';
import { answers, contents, eventOf } from '../../answers/answers.ts';
import { whenLeft } from '../../answers/when-left.ts';
import type { App } from '../../app.ts';
import { endOf } from '../../access/end-with-key.ts';
import { EventStream } from '../../answers/event-stream.ts';
import { buildErrorFrame } from '../../answers/stream-error.ts';
import { CommandParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

const OK = contents('A page of output, or output as the command writes it, then how the command ended.', {
  'application/json': CommandOutput,
  'text/event-stream': eventOf(CommandEvent),
});

/** Of the whole page, once the guest has begun to answer. */
const PAGE_DEADLINE_MS = 30_000;

type Parts = Pick<HttpParts, 'commands' | 'sandboxes' | 'openRequests'>;

export function addCommandOutput(app: App, { commands, sandboxes, openRequests }: Parts): void {
  app.route({
    method: 'GET',
    url: '/v1/runs/:id/commands/:command/output',
    config: { access: 'read' },
    schema: {
      operationId: 'getCommandOutput',
      summary: 'Read the output of a command from an offset on, as a page or as a stream',
      description:
        'With `Accept: text/event-stream`: server-sent events, one CommandEvent per `data:` line, until the command has ' +
        'ended. The id of an event is the offset of the next one; a client that continues sends it as `Last-Event-ID`. With ' +
        '`encoding=base64` nothing is repeated; text may repeat output of one stream in the middle of a character of the other.',
      params: CommandParams,
      querystring: CommandOutputQuery,
      response: { ...answers(200, CommandOutput, [400, 401, 404, 409, 429, 502, 503, 504]), 200: OK },
    },
    handler: async (request, reply) => {
      const { organizationId, reach, params, keyScope } = request;
      const left = whenLeft(reply);
      const address = { reach, sandboxId: params.id, id: params.command };
      const query = { ...request.query, offset: readLastId(request) ?? request.query.offset };
      const driver = await sandboxes.getDriver(reach, params.id);
      const wake = { mayWake: keyScope === 'full' };
      const open = (follow: boolean) => commands.openOutput(address, { position: query.offset, follow });
      if (request.headers.accept?.includes('text/event-stream') !== true)
        return openRequests.limit(organizationId, () =>
          driver.use(async () => {
            const { stream } = await open(false);
            endWith(stream, AbortSignal.any([left, AbortSignal.timeout(PAGE_DEADLINE_MS)]));
            return readPage(readKeptOutput(stream, query.offset), query);
          }, wake),
        );
      await openRequests.stream(organizationId, () =>
        driver.use(async () => {
          const { stream } = await open(true);
          const events = new EventStream(reply);
          endWith(stream, AbortSignal.any([events.left, endOf(request, openRequests)]));
          try {
            await sendOutput(readKeptOutput(stream, query.offset), query, events);
          } catch (error) {
            await events.send(buildErrorFrame(error, request, openRequests));
          } finally {
            events.end();
          }
        }, wake),
      );
      return reply;
    },
  });
}

function endWith(stream: ClientHttp2Stream, signal: AbortSignal): void {
  const end = (): void => void stream.destroy();
  if (signal.aborted) end();
  else signal.addEventListener('abort', end, { once: true });
}

/** Sends output and the exit. The id of each event is the offset from which a client continues. */
async function sendOutput(
  output: AsyncIterable<KeptOutput>,
  query: Pick<CommandOutputQuery, 'encoding' | 'stream'>,
  events: EventStream,
): Promise<void> {
  const text = new OutputText(query);
  for await (const one of output) {
    if (one.type === 'exit') {
      for (const part of text.end()) await events.send(CommandEvent.parse(part));
      const { exit_code, timed_out } = one;
      await events.send(CommandEvent.parse({ type: 'exit', data: String(exit_code), timed_out }));
    } else if (one.type === 'dropped') {
      for (const part of text.end()) await events.send(CommandEvent.parse(part));
      await events.send(CommandEvent.parse(one), one.next_offset);
    } else {
      const id = (): number => text.nextOffset(one.offset + one.data.length);
      for (const part of text.encode(one)) await events.send(CommandEvent.parse(part), id());
    }
    if (events.left.aborted) return;
  }
}

/** Returns the offset from which a client continues. */
function readLastId({ headers }: FastifyRequest): number | undefined {
  const id = headers['last-event-id'];
  if (id === undefined) return undefined;
  if (typeof id === 'string' && /^\d{1,15}$/.test(id)) return Number(id);
  throw new AppError('invalid_request', 'Last-Event-ID: is not the id of an event of this stream');
}
