import {
  AppError,
  BuildImageEvent,
  BuildImageRequest,
  ImageRecord,
  parseImageReference,
} from '@coppice/contract';
import type { FastifyReply } from 'fastify';
import type { PrepareProgress, PreparedImage } from '../../../lib/runner-protocol.ts';
import { answers } from '../answers.ts';
import type { App } from '../app.ts';
import { toHeaders } from '../delayed-json.ts';
import { buildErrorBody, logError, toAppError } from '../error-mapper.ts';
import type { HttpParts } from '../parts.ts';

const KEEP_ALIVE_MS = 15_000;
/** The last one keeps a proxy from holding events back. */
const SSE_HEADERS = {
  'content-type': 'text/event-stream',
  'cache-control': 'no-store',
  'x-accel-buffering': 'no',
};

/** The preparation goes on when the client leaves: the next create of this image has use of it. */
export function addBuildImage(
  app: App,
  { runner, openRequests }: Pick<HttpParts, 'runner' | 'openRequests'>,
): void {
  app.route({
    method: 'POST',
    url: '/v1/images/build',
    schema: {
      operationId: 'buildImage',
      summary: 'Pull and prepare an image, as a first create would',
      description:
        'With `Accept: text/event-stream` the answer streams BuildImageEvent, one per `data:` line.',
      body: BuildImageRequest,
      response: answers(200, ImageRecord, [400, 401, 404, 429, 502, 503]),
    },
    handler: (request, reply) =>
      openRequests.limit(request.organizationId, async () => {
        parseImageReference(request.body.image);
        const progress = runner.prepareImage(request.body.image);
        if (request.headers.accept?.includes('text/event-stream') !== true) return waitForImage(progress);
        await stream(progress, reply);
        return reply;
      }),
  });
}

async function waitForImage(progress: AsyncIterable<PrepareProgress>): Promise<PreparedImage> {
  for await (const event of requireDone(progress)) if (event.type === 'done') return event.image;
  throw STOPPED;
}

const STOPPED = new AppError('unavailable', 'the runner stopped in the middle of the preparation; try again');

/** Steps, then `done`; throws what went wrong instead. */
async function* requireDone(progress: AsyncIterable<PrepareProgress>): AsyncGenerator<BuildImageEvent> {
  for await (const event of progress) {
    if (event.type === 'error') throw new AppError(event.error.code, event.error.message);
    yield event;
    if (event.type === 'done') return;
  }
  throw STOPPED;
}

async function stream(progress: AsyncIterable<PrepareProgress>, reply: FastifyReply): Promise<void> {
  reply.hijack();
  const { raw } = reply;
  raw.on('error', (error) => reply.log.debug({ err: error }, 'an event stream broke'));
  raw.writeHead(200, { ...toHeaders(reply), ...SSE_HEADERS });
  raw.flushHeaders();
  const timer = setInterval(() => raw.write(':\n\n'), KEEP_ALIVE_MS);
  const send = (event: BuildImageEvent) =>
    raw.write(`data: ${JSON.stringify(BuildImageEvent.parse(event))}\n\n`);
  try {
    for await (const event of requireDone(progress)) send(event);
  } catch (error) {
    const mapped = toAppError(error);
    logError(mapped, reply.request);
    send({ type: 'error', ...buildErrorBody(mapped, reply.request.id) });
  } finally {
    clearInterval(timer);
    raw.end();
  }
}
