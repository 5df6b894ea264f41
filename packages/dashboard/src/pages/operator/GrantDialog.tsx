import { useSignal } from '@preact/signals';
import type { OperatedOrganization } from '../../../../contract/src/accounts/operator.ts';
import { callAccount } from '../../service/account-calls.ts';
import { ActionDialog } from '../../ui/ActionDialog.tsx';
import { TextField } from '../../ui/Field.tsx';
import { formatCents } from '../../ui/format.ts';

interface GrantDialogProps {
  organization: OperatedOrganization;
  onClose: () => void;
}

export function GrantDialog({ organization, onClose }: GrantDialogProps) {
  const { id, name, credit_left_cents: left } = organization;
  const dollars = useSignal('');
  const note = useSignal('');
  const cents = Math.round(Number(dollars.value) * 100);
  return (
    <ActionDialog
      title={`Credit of ${name}`}
      verb={cents < 0 ? 'Take back' : 'Grant'}
      kind={cents < 0 ? 'danger' : 'primary'}
      isDisabled={!Number.isSafeInteger(cents) || cents === 0}
      act={() =>
        callAccount('POST', `/operator/organizations/${id}/credit`, { cents, note: note.value.trim() })
      }
      done={cents < 0 ? 'The credit is taken back' : 'The credit is granted'}
      onClose={onClose}
    >
      <p class="soft">
        {left === null
          ? 'Credit has no consequences on this service: COPPICE_CREDIT_USD is not set.'
          : `${formatCents(left)} are left.`}
      </p>
      <TextField
        label="Amount in USD"
        hint="A negative amount takes credit back."
        value={dollars.value}
        onValue={(value) => (dollars.value = value)}
        attributes={{ type: 'number', step: '0.01', required: true }}
      />
      <TextField
        label="Note"
        isOptional
        hint="For operators. The organization does not see it."
        value={note.value}
        onValue={(value) => (note.value = value)}
      />
    </ActionDialog>
  );
}
