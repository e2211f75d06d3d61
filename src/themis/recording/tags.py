"""The tags that tell events, commands and alarms apart in logs and stores.

A tag is part of the stored format and apart from the name of its class: when a class is renamed,
its tag stays, and what was stored before can still be read.
"""

from collections.abc import Mapping

from themis.core.arbiter import alarms, commands, events

TAG = "type"
"""The key that holds the tag."""

EVENTS: Mapping[str, type[events.Event]] = {
    "app-arrived": events.AppArrived,
    "app-ended": events.AppEnded,
    "phase-started": events.PhaseStarted,
    "targets-revised": events.TargetsRevised,
    "work-added": events.WorkAdded,
    "progress-measured": events.ProgressMeasured,
    "app-suspended": events.AppSuspended,
    "app-resumed": events.AppResumed,
    "bid-received": events.BidReceived,
    "solved": events.Solved,
    "solve-failed": events.SolveFailed,
    "gpus-vacated": events.GpusVacated,
    "gpus-released": events.GpusReleased,
    "job-started": events.JobStarted,
    "job-stopped": events.JobStopped,
    "machine-joined": events.MachineJoined,
    "machine-left": events.MachineLeft,
    "machine-cordoned": events.MachineCordoned,
    "machine-uncordoned": events.MachineUncordoned,
    "gpu-quarantined": events.GpuQuarantined,
    "gpu-restored": events.GpuRestored,
    "weight-changed": events.WeightChanged,
    "quota-changed": events.QuotaChanged,
    "settings-changed": events.SettingsChanged,
    "service-restarted": events.ServiceRestarted,
    "rounds-held": events.RoundsHeld,
    "woken": events.Woken,
}

COMMANDS: Mapping[str, type[commands.Command]] = {
    "ask": commands.Ask,
    "solve": commands.Solve,
    "assign": commands.Assign,
    "end": commands.End,
    "wake-me": commands.WakeMe,
    "refuse": commands.Refuse,
    "record-round": commands.RecordRound,
    "record-app": commands.RecordApp,
}

ALARMS: Mapping[str, type[alarms.Alarm]] = {
    "open-beat": alarms.OpenBeat,
    "open-free": alarms.OpenFree,
    "close-answers": alarms.CloseAnswers,
    "close-admission": alarms.CloseAdmission,
    "tell-to-leave": alarms.TellToLeave,
    "take-as-empty": alarms.TakeAsEmpty,
    "check-idle": alarms.CheckIdle,
}

TAG_OF: Mapping[type, str] = {
    kind: tag for tags in (EVENTS, COMMANDS, ALARMS) for tag, kind in tags.items()
}
