import { useSignal } from '@preact/signals';
import type { OperatedOrganization } from '../../../../contract/src/accounts/operator.ts';
import { callAccount } from '../../service/account-calls.ts';
import { ActionDialog } from '../../ui/ActionDialog.tsx';
import { TextField } from '../../ui/Field.tsx';
import { showHidden } from '../../ui/visible-text.ts';
import { findFaults, LIMIT_GROUPS, toChange, toFields } from './limit-fields.ts';

interface LimitsDialogProps {
  organization: OperatedOrganization;
  onClose: () => void;
}

export function LimitsDialog({ organization, onClose }: LimitsDialogProps) {
  const { id, name, limits } = organization;
  const fields = useSignal(toFields(limits));
  const faults = findFaults(fields.value);
  const hasFault = Object.keys(faults).length > 0;
  const change = hasFault ? {} : toChange(fields.value, limits);
  return (
    <ActionDialog
      title={`Limits of ${showHidden(name)}`}
      verb="Save"
      size="large"
      isDisabled={Object.keys(change).length === 0}
      act={() => callAccount('PATCH', `/operator/organizations/${id}/limits`, change)}
      done="The limits are in force within 10 s"
      onClose={onClose}
    >
      <p class="soft">Where a field is empty, the setting of the service applies.</p>
      {LIMIT_GROUPS.map((group) => (
        <fieldset key={group.title} class="limit-group">
          <legend>{group.title}</legend>
          <div class="limit-fields">
            {group.fields.map(({ name: field, label, hint, unit }) => (
              <TextField
                key={field}
                label={label}
                hint={hint}
                error={faults[field]}
                value={fields.value[field]}
                onValue={(value) => (fields.value = { ...fields.value, [field]: value })}
                attributes={{
                  inputMode: unit === undefined ? 'numeric' : 'decimal',
                  placeholder: 'Setting of the service',
                }}
              />
            ))}
          </div>
        </fieldset>
      ))}
    </ActionDialog>
  );
}
