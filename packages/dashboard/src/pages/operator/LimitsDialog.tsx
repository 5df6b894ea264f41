import { useSignal } from '@preact/signals';
import type { OperatedOrganization } from '../../../../contract/src/accounts/operator.ts';
import { callAccount } from '../../service/account-calls.ts';
import { ActionDialog } from '../../ui/ActionDialog.tsx';
import { TextField } from '../../ui/Field.tsx';
import { LIMIT_LABELS, toChange, toFields } from './limit-fields.ts';

interface LimitsDialogProps {
  organization: OperatedOrganization;
  onClose: () => void;
}

export function LimitsDialog({ organization, onClose }: LimitsDialogProps) {
  const { id, name, limits } = organization;
  const fields = useSignal(toFields(limits));
  const change = toChange(fields.value, limits);
  return (
    <ActionDialog
      title={`Limits of ${name}`}
      verb="Save"
      size="large"
      isDisabled={Object.keys(change).length === 0}
      act={() => callAccount('PATCH', `/operator/organizations/${id}/limits`, change)}
      done="The limits are in force within 10 s"
      onClose={onClose}
    >
      <p class="soft">An empty field: the setting of the service applies.</p>
      <div class="columns small">
        {LIMIT_LABELS.map(([field, label, hint]) => (
          <TextField
            key={field}
            label={label}
            hint={hint}
            value={fields.value[field]}
            onValue={(value) => (fields.value = { ...fields.value, [field]: value })}
            attributes={{
              type: 'number',
              inputMode: 'numeric',
              min: 0,
              placeholder: 'Setting of the service',
            }}
          />
        ))}
      </div>
    </ActionDialog>
  );
}
