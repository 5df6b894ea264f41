import { BudgetRecord, PutBudgetRequest } from '@coppice/contract';
import { z } from 'zod';
import { answers, NOTHING } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { actorOf } from '../../requests/actor-of.ts';
import { BudgetParams } from '../../requests/params.ts';

type Parts = Pick<HttpParts, 'budgets' | 'openRequests'>;

export function addBudgetRoutes(app: App, parts: Parts): void {
  addListBudgets(app, parts);
  addPutBudget(app, parts);
  addDeleteBudget(app, parts);
}

function addListBudgets(app: App, { budgets, openRequests }: Parts): void {
  app.route({
    method: 'GET',
    url: '/v1/budgets',
    config: { access: 'read' },
    schema: {
      operationId: 'listBudgets',
      summary: 'List the budgets of the organization and its teams, with the cost of the current month',
      description: 'A key that is limited to its team gets the budget of the team.',
      response: answers(200, z.array(BudgetRecord), [401, 429, 503]),
    },
    handler: ({ organizationId, reach }) => openRequests.limit(organizationId, () => budgets.list(reach)),
  });
}

function addPutBudget(app: App, { budgets, openRequests }: Parts): void {
  app.route({
    method: 'PUT',
    url: '/v1/budgets/:scope',
    config: { access: 'organization' },
    schema: {
      operationId: 'putBudget',
      summary: 'Set the budget of the organization or of a team',
      description:
        'When the cost of a month reaches one of `alert_percents`, there is one event `budget.reached`, which webhooks deliver. ' +
        'Nothing is stopped. `scope` is `organization` or the id of a team. After a deletion, and with another amount, the alerts of the current month begin anew.',
      params: BudgetParams,
      body: PutBudgetRequest,
      response: answers(200, BudgetRecord, [400, 401, 404, 429, 503]),
    },
    handler: (request) => {
      const { organizationId, params, body } = request;
      const change = { organizationId, by: actorOf(request) };
      return openRequests.limit(organizationId, () => budgets.put(change, params.scope, body));
    },
  });
}

function addDeleteBudget(app: App, { budgets }: Parts): void {
  app.route({
    method: 'DELETE',
    url: '/v1/budgets/:scope',
    config: { access: 'organization' },
    schema: {
      operationId: 'deleteBudget',
      summary: 'Delete the budget of the organization or of a team',
      params: BudgetParams,
      response: answers(204, NOTHING, [400, 401, 404, 503]),
    },
    handler: async (request, reply) => {
      const { organizationId, params } = request;
      await budgets.remove({ organizationId, by: actorOf(request) }, params.scope);
      return reply.code(204).send(null);
    },
  });
}
