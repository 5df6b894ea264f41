import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { Statement, StatementParams, StatementQuery } from '@coppice/contract';
import type { FastifyReply } from 'fastify';
import { z } from 'zod';
import { toMonth } from '../../../billing/months/month.ts';
import { answers, contents } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { beginRawAnswer } from '../../answers/raw-answer.ts';

const OK = contents('The statement, or its lines as CSV.', {
  'application/json': Statement,
  'text/csv': z.string().describe('A header, then one line for each sandbox.'),
});

export function addGetStatement(
  app: App,
  { billing, openRequests }: Pick<HttpParts, 'billing' | 'openRequests'>,
): void {
  app.route({
    method: 'GET',
    url: '/v1/statements/:month',
    config: { access: 'read' },
    schema: {
      operationId: 'getStatement',
      summary:
        'Get what the organization owes for a month in UTC, with a line for each sandbox that ran in it',
      description:
        'The next page of lines is in the header `Link: <…>; rel="next"`. With `format=csv` all lines come as CSV.',
      params: StatementParams,
      querystring: StatementQuery,
      response: { ...answers(200, Statement, []), 200: OK },
    },
    handler: (request, reply) =>
      openRequests.limit(request.organizationId, async () => {
        const { reach, params, query } = request;
        const month = toMonth(params.month);
        if (query.format === 'csv') return sendCsv(reply, billing.statementCsv(reach, month));
        const { limit, cursor: after = '' } = query;
        const statement = await billing.statement(reach, month, { limit: limit + 1, after });
        return cutPage(reply, statement, limit);
      }),
  });
}

function cutPage(reply: FastifyReply, statement: Statement, limit: number): Statement {
  const lines = statement.lines.slice(0, limit);
  const last = lines.at(-1);
  if (statement.lines.length > limit && last !== undefined) {
    const query = new URLSearchParams({ limit: String(limit), cursor: last.sandbox_id });
    reply.header('link', `</v1/statements/${statement.month}?${query.toString()}>; rel="next"`);
  }
  return { ...statement, lines };
}

/** Reads the first lines before the status is sent, so that an immediate failure is still an error answer. */
async function sendCsv(reply: FastifyReply, parts: AsyncGenerator<string>): Promise<FastifyReply> {
  const head = await parts.next();
  const first = await parts.next();
  const raw = beginRawAnswer(reply, 200, { 'content-type': 'text/csv; charset=utf-8' });
  try {
    await pipeline(Readable.from(join([head, first], parts)), raw);
  } catch (error) {
    // Broken off, so that no client takes it for the whole month.
    reply.log.warn({ err: error }, 'a statement was cut off');
    raw.destroy();
  }
  return reply;
}

async function* join(
  read: readonly IteratorResult<string, void>[],
  rest: AsyncGenerator<string>,
): AsyncGenerator<string> {
  for (const { done, value } of read) if (done !== true && typeof value === 'string') yield value;
  yield* rest;
}
