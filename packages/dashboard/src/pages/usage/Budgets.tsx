import { useSignal } from '@preact/signals';
import type { Budget, Coppice } from '../../../../sdk/src/index.ts';
import { requireClient } from '../../service/require-client.ts';
import { useResource } from '../../service/resource.ts';
import { isOwner, place, teamNameOf } from '../../service/session.ts';
import { ActionDialog } from '../../ui/ActionDialog.tsx';
import { Badge } from '../../ui/Badge.tsx';
import { Button } from '../../ui/Button.tsx';
import { CopyAsCode } from '../../ui/CopyAsCode.tsx';
import { writeDollars } from '../../ui/dollars.ts';
import { SelectField, TextField } from '../../ui/Field.tsx';
import { formatCents } from '../../ui/format.ts';
import { Icon } from '../../ui/Icon.tsx';
import { Menu } from '../../ui/Menu.tsx';
import { Meter } from '../../ui/Meter.tsx';
import { Card } from '../../ui/Page.tsx';
import { Loaded } from '../../ui/states.tsx';
import { showHidden } from '../../ui/visible-text.ts';
import { deleteBudgetCall, LIST_BUDGETS, setBudgetCall } from './budget-calls.ts';
import { readBudget } from './budget-form.ts';
import { formatMonth } from './utc-day.ts';

const ORGANIZATION = 'organization';
const DEFAULT_PERCENTS = '50, 80, 100';
const EXAMPLE = { monthCents: 25_000, alertPercents: [50, 80, 100] };

/** Budgets of the current month. They stop nothing: a part that is reached makes an event. */
export function Budgets({ client }: { client: Coppice }) {
  const edited = useSignal<Budget | 'new' | undefined>(undefined);
  const deleted = useSignal<Budget | undefined>(undefined);
  const resource = useResource((signal) => client.budgets.list({ signal }), [client], {
    concerns: ({ type }) => type === 'budget.reached',
  });
  return (
    <Card
      title="Budgets"
      actions={
        <>
          <CopyAsCode {...LIST_BUDGETS} />
          {isOwner.value && (
            <Button icon="plus" onClick={() => (edited.value = 'new')}>
              New budget
            </Button>
          )}
        </>
      }
    >
      <Loaded resource={resource} rows={1}>
        {(budgets) => (
          <BudgetList
            budgets={budgets}
            onEdit={(budget) => (edited.value = budget)}
            onDelete={(budget) => (deleted.value = budget)}
          />
        )}
      </Loaded>
      {edited.value !== undefined && (
        <SetBudget
          before={edited.value === 'new' ? undefined : edited.value}
          onClose={() => (edited.value = undefined)}
          onDone={resource.reload}
        />
      )}
      {deleted.value !== undefined && (
        <DeleteBudget
          budget={deleted.value}
          onClose={() => (deleted.value = undefined)}
          onDone={resource.reload}
        />
      )}
    </Card>
  );
}

interface ListProps {
  budgets: readonly Budget[];
  onEdit: (budget: Budget) => void;
  onDelete: (budget: Budget) => void;
}

function BudgetList({ budgets, ...actions }: ListProps) {
  if (budgets.length === 0)
    return (
      <p class="hint">
        No budget is set. A budget makes an event, which <a href="/webhooks">webhooks</a> deliver, when a
        month begins to cost too much. It stops nothing.
      </p>
    );
  return (
    <ul class="shares budgets" aria-label="Budgets">
      {budgets.map((budget) => (
        <BudgetLine key={budget.scope} budget={budget} {...actions} />
      ))}
    </ul>
  );
}

function BudgetLine({
  budget,
  onEdit,
  onDelete,
}: { budget: Budget } & Pick<ListProps, 'onEdit' | 'onDelete'>) {
  const { scope, costCents, monthCents, alertPercents, reachedPercents } = budget;
  const share = costCents / monthCents;
  const name = nameOf(scope);
  const next = alertPercents.find((percent) => !reachedPercents.includes(percent));
  return (
    <li class="budget">
      <span class="share-name">{name}</span>
      <span class="share-value">
        {formatCents(costCents)} <span class="soft">of {formatCents(monthCents)}</span>
      </span>
      {isOwner.value && (
        <Menu
          label={`Actions for the budget of ${name}`}
          button={<Icon name="more" />}
          items={[
            { label: 'Change', icon: 'settings', onSelect: () => onEdit(budget) },
            { label: 'Delete', icon: 'trash', kind: 'danger', onSelect: () => onDelete(budget) },
          ]}
        />
      )}
      <Meter
        label={`Budget of ${name}`}
        value={Math.min(100, toPercent(share))}
        max={100}
        text={`${toPercent(share)} %`}
        share={share}
        tone={share >= 1 ? 'bad' : reachedPercents.length > 0 ? 'warn' : undefined}
      />
      <span class="budget-foot hint">
        <span>
          {toPercent(share)} % of {formatMonth(budget.month)}.{' '}
          {next === undefined ? 'Every alert was reported.' : `Next alert at ${next} %.`}
        </span>
        <BudgetState share={share} reached={reachedPercents} />
      </span>
    </li>
  );
}

function BudgetState({ share, reached }: { share: number; reached: readonly number[] }) {
  if (share >= 1) return <Badge tone="bad">over budget</Badge>;
  const last = reached.at(-1);
  return last === undefined ? null : <Badge tone="warn">{last} % reached</Badge>;
}

interface DialogProps {
  onClose: () => void;
  onDone: () => void;
}

function SetBudget({ before, onClose, onDone }: DialogProps & { before: Budget | undefined }) {
  const scope = useSignal(before?.scope ?? ORGANIZATION);
  const dollars = useSignal(before === undefined ? '' : writeDollars(before.monthCents));
  const percents = useSignal(before?.alertPercents.join(', ') ?? DEFAULT_PERCENTS);
  const { options, faults } = readBudget({ dollars: dollars.value, percents: percents.value });
  const set = async (): Promise<void> => {
    if (options !== undefined) await requireClient().budgets.set(scope.value, options);
  };
  return (
    <ActionDialog
      title={before === undefined ? 'New budget' : `Budget of ${nameOf(before.scope)}`}
      verb="Set budget"
      done={`The budget of ${nameOf(scope.value)} is set.`}
      isDisabled={options === undefined}
      act={set}
      onClose={onClose}
      onDone={onDone}
      code={setBudgetCall(scope.value, options ?? EXAMPLE)}
    >
      {before === undefined && (
        <SelectField
          label="Budget of"
          hint="A budget that exists is replaced."
          value={scope.value}
          options={[ORGANIZATION, ...(place.value?.organization.teams ?? []).map(({ id }) => id)].map(
            (id) => [id, nameOf(id)] as const,
          )}
          onValue={(value) => (scope.value = value)}
        />
      )}
      <TextField
        label="US dollars a month"
        hint="Sandboxes and disks together, in a calendar month in UTC."
        error={faults.dollars}
        value={dollars.value}
        onValue={(value) => (dollars.value = value)}
        attributes={{ inputMode: 'decimal', placeholder: '250' }}
      />
      <TextField
        label="Alerts at percent"
        hint="Each is one event budget.reached in a month. Another amount begins anew."
        error={faults.percents}
        value={percents.value}
        onValue={(value) => (percents.value = value)}
        attributes={{ placeholder: DEFAULT_PERCENTS }}
      />
    </ActionDialog>
  );
}

function DeleteBudget({ budget: { scope }, onClose, onDone }: DialogProps & { budget: Budget }) {
  return (
    <ActionDialog
      title="Delete the budget"
      verb="Delete budget"
      kind="danger"
      done={`The budget of ${nameOf(scope)} is deleted.`}
      act={() => requireClient().budgets.delete(scope)}
      onClose={onClose}
      onDone={onDone}
      code={deleteBudgetCall(scope)}
    >
      <p>There are no more alerts for {nameOf(scope)}. Its costs are counted as before.</p>
    </ActionDialog>
  );
}

/** A part that is not reached must not look as if it were. */
function toPercent(share: number): number {
  return Math.floor(share * 100);
}

/** Names are those of callers. */
function nameOf(scope: string): string {
  if (scope === ORGANIZATION) return showHidden(place.value?.organization.name ?? 'the organization');
  return `team ${showHidden(teamNameOf(scope))}`;
}
