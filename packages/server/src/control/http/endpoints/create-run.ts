import { AppError, CreateSandboxRequest, SandboxRecord } from '@coppice/contract';
import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import { newSandboxId } from '../../sandbox/sandboxes.ts';
import type { RunnerClient } from '../../placement/runner-client.ts';
import { answers } from '../answers.ts';
import type { App } from '../app.ts';
import type { HttpParts } from '../parts.ts';

const ROUTE = 'POST /v1/runs';
const Headers = z.looseObject({ 'idempotency-key': z.string().optional() });

export function addCreateRun(
  app: App,
  parts: Pick<HttpParts, 'sandboxes' | 'idempotency' | 'openRequests' | 'runner'>,
): void {
  const { sandboxes, idempotency, openRequests, runner } = parts;
  app.route({
    method: 'POST',
    url: '/v1/runs',
    schema: {
      operationId: 'createSandbox',
      summary: 'Create a sandbox; answers when a first command can run',
      headers: Headers,
      body: CreateSandboxRequest,
      response: answers(201, SandboxRecord, [400, 401, 404, 409, 413, 422, 429, 502, 503]),
    },
    preValidation: (request) => refuseNetworkRules(request, runner),
    handler: async (request, reply) => {
      const { organizationId, body } = request;
      const create = (id: string) => sandboxes.create({ organizationId, id, request: body });
      const key = readKey(request.headers['idempotency-key']);
      const answer = await openRequests.limit(organizationId, async () => {
        if (key === undefined) return { record: await create(newSandboxId()), isReplayed: false };
        const find = (id: string) => sandboxes.find(organizationId, id);
        return idempotency.run({ organizationId, route: ROUTE, key, body, newSandboxId, create, find });
      });
      if (answer.isReplayed) reply.header('idempotency-replayed', 'true');
      return reply.code(201).header('location', `/v1/runs/${answer.record.id}`).send(answer.record);
    },
  });
}

const NETWORK_FIELDS = ['network', 'network_profile'];

/** Before the schema says that this version has no rules: there are none to be had on a machine without a network. */
async function refuseNetworkRules(request: FastifyRequest, runner: RunnerClient): Promise<void> {
  const { body } = request;
  if (typeof body !== 'object' || body === null) return;
  const fields = NETWORK_FIELDS.filter((field) => Object.hasOwn(body, field));
  if (fields.length === 0) return;
  const { network, network_reason: reason } = await runner.status();
  if (network === 'filtered') return;
  throw new AppError(
    'invalid_request',
    `${fields.join(', ')}: no rules can be set, sandboxes on this machine have no network at all: ${reason}`,
  );
}

function readKey(header: string | undefined): string | undefined {
  if (header === undefined) return undefined;
  if (!/^[\x21-\x7e]{1,255}$/.test(header)) {
    throw new AppError('invalid_request', 'Idempotency-Key: must be 1 to 255 visible ASCII characters');
  }
  return header;
}
