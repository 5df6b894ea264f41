import { useSignal } from '@preact/signals';
import type { OperatedOrganization } from '../../../../contract/src/accounts/operator.ts';
import { callAccount } from '../../service/account-calls.ts';
import { ActionDialog } from '../../ui/ActionDialog.tsx';
import { isBegun, parseCents } from '../../ui/dollars.ts';
import { TextField } from '../../ui/Field.tsx';
import { formatCents } from '../../ui/format.ts';
import { Facts } from '../../ui/Page.tsx';
import { Segments } from '../../ui/Segments.tsx';
import { showHidden } from '../../ui/visible-text.ts';

interface GrantDialogProps {
  organization: OperatedOrganization;
  onClose: () => void;
}

const DIRECTIONS = [
  [1, 'Grant'],
  [-1, 'Take back'],
] as const;

export function GrantDialog({ organization, onClose }: GrantDialogProps) {
  const { id, name, credit_left_cents: left } = organization;
  const sign = useSignal<1 | -1>(1);
  const dollars = useSignal('');
  const note = useSignal('');
  const amount = parseCents(dollars.value);
  const cents = amount === undefined ? undefined : sign.value * amount;
  const isGrant = sign.value === 1;
  const verb = isGrant ? 'Grant' : 'Take back';
  const isWrong = !isBegun(dollars.value) && amount === undefined;
  return (
    <ActionDialog
      title={`Credit of ${showHidden(name)}`}
      verb={amount === undefined ? verb : `${verb} ${formatCents(amount)}`}
      kind={isGrant ? 'primary' : 'danger'}
      isDisabled={cents === undefined}
      act={() =>
        callAccount('POST', `/operator/organizations/${id}/credit`, { cents, note: note.value.trim() })
      }
      done={isGrant ? 'The credit is granted' : 'The credit is taken back'}
      onClose={onClose}
    >
      <Segments
        label="Direction"
        options={DIRECTIONS}
        value={sign.value}
        onValue={(chosen) => (sign.value = chosen)}
      />
      <TextField
        label="Amount in USD"
        error={
          isWrong ? 'Amount in USD must be above 0, with at most two decimals, such as 2.50.' : undefined
        }
        hint="Above 0, with at most two decimals."
        value={dollars.value}
        onValue={(value) => (dollars.value = value)}
        attributes={{ inputMode: 'decimal', required: true }}
      />
      <TextField
        label="Note"
        isOptional
        hint="For operators. The organization does not see it."
        value={note.value}
        onValue={(value) => (note.value = value)}
      />
      {left === null ? (
        <p class="soft">Credit has no consequences on this service: COPPICE_CREDIT_USD is not set.</p>
      ) : (
        <Facts
          facts={[
            ['Credit left now', formatCents(left)],
            ['Afterwards', cents === undefined ? '–' : formatCents(left + cents)],
          ]}
        />
      )}
    </ActionDialog>
  );
}
