----------------------------- MODULE Lifecycle -----------------------------
(* Readiness and drain of three services in a chain, with tasks that crash, *)
(* boot late and refuse to leave. Restart delays, windows and heartbeats    *)
(* are not modelled: a delay is any time, a freeze is a crash.              *)
EXTENDS Naturals, FiniteSets

CONSTANTS
    Bug,        \* "none", or the mistake to make
    MaxCrashes  \* how many crashes one history may have

ASSUME Bug \in {"none", "restart_while_draining", "providers_first", "dependent_ready_first", "forgets_deadline"}

Services == {"base", "middle", "top"}

DependsOn == [base |-> {}, middle |-> {"base"}, top |-> {"middle"}]

\* Phases as in the policy: 1 intake, 2 work, 3 flush, 4 observe.
Tasks == {"base_work", "base_flush", "middle_intake", "middle_work", "top_intake"}

ServiceOf == [base_work |-> "base", base_flush |-> "base", middle_intake |-> "middle",
              middle_work |-> "middle", top_intake |-> "top"]

PhaseOf == [base_work |-> 2, base_flush |-> 3, middle_intake |-> 1, middle_work |-> 2, top_intake |-> 1]

VARIABLES
    task,       \* where each task is in its life
    ready,      \* what is published of each service
    drain,      \* "no", "draining" or "finished"
    told,       \* the tasks that were told to stop
    crashes

vars == <<task, ready, drain, told, crashes>>

TaskStates == {"waiting", "starting", "up", "restarting", "gone"}

-----------------------------------------------------------------------------
RECURSIVE Needs(_)
\* The service and all it depends on, directly or not.
Needs(s) == {s} \union UNION {Needs(p) : p \in DependsOn[s]}

Dependents(s) == {d \in Services : s \in DependsOn[d]}

Max(S) == CHOOSE x \in S : \A y \in S : y <= x

RECURSIVE Level(_)
\* Length of the longest chain of services that depend on it: 0 stops first.
Level(s) == IF Dependents(s) = {} THEN 0 ELSE 1 + Max({Level(d) : d \in Dependents(s)})

Live(t) == task[t] \in {"starting", "up"}

Serves(s) == \A t \in Tasks : ServiceOf[t] \in Needs(s) => task[t] = "up"

ProvidersReady(s) == \A p \in DependsOn[s] : ready[p] /\ Serves(p)

\* The place of a task in the order of the drain.
Place(t) ==
    LET level == Level(ServiceOf[t])
    IN  10 * PhaseOf[t] + (IF Bug = "providers_first" THEN 9 - level ELSE level)

-----------------------------------------------------------------------------
Init ==
    /\ task = [t \in Tasks |-> "waiting"]
    /\ ready = [s \in Services |-> FALSE]
    /\ drain = "no"
    /\ told = {}
    /\ crashes = 0

\* A start or a restart: never in a drain, and never before what it depends on.
Start(t) ==
    /\ task[t] \in {"waiting", "restarting"}
    /\ drain = "no" \/ (Bug = "restart_while_draining" /\ drain = "draining" /\ task[t] = "restarting")
    /\ ProvidersReady(ServiceOf[t]) \/ drain = "draining"
    /\ task' = [task EXCEPT ![t] = "starting"]
    /\ UNCHANGED <<ready, drain, told, crashes>>

BootReady(t) ==
    /\ drain # "finished"
    /\ task[t] = "starting"
    /\ task' = [task EXCEPT ![t] = "up"]
    /\ UNCHANGED <<ready, drain, told, crashes>>

Crash(t) ==
    /\ drain # "finished"
    /\ Live(t)
    /\ crashes < MaxCrashes
    /\ crashes' = crashes + 1
    /\ task' = [task EXCEPT ![t] =
                    IF drain = "no" \/ Bug = "restart_while_draining" THEN "restarting" ELSE "gone"]
    /\ UNCHANGED <<ready, drain, told>>

\* A loss is published after the losses of all that depend on it.
PublishLoss(s) ==
    /\ drain = "no"
    /\ ready[s]
    /\ ~Serves(s)
    /\ \A d \in Dependents(s) : ~ready[d]
    /\ ready' = [ready EXCEPT ![s] = FALSE]
    /\ UNCHANGED <<task, drain, told, crashes>>

\* A gain is published after the gains of all it depends on.
PublishReady(s) ==
    /\ drain = "no"
    /\ ~ready[s]
    /\ IF Bug = "dependent_ready_first"
       THEN \A t \in Tasks : ServiceOf[t] = s => task[t] = "up"
       ELSE Serves(s) /\ ProvidersReady(s)
    /\ ready' = [ready EXCEPT ![s] = TRUE]
    /\ UNCHANGED <<task, drain, told, crashes>>

DrainRequested ==
    /\ drain = "no"
    /\ drain' = "draining"
    /\ ready' = [s \in Services |-> FALSE]
    /\ task' = [t \in Tasks |->
                    IF Live(t) \/ (Bug = "restart_while_draining" /\ task[t] = "restarting")
                    THEN task[t] ELSE "gone"]
    /\ UNCHANGED <<told, crashes>>

\* The next step of the drain, once nothing is left of the one before.
StopPhase ==
    /\ drain = "draining"
    /\ \E t \in Tasks : Live(t)
    /\ \A t \in told : ~Live(t)
    /\ told' = told \union {t \in Tasks : Live(t) /\ \A u \in Tasks : Live(u) => Place(t) <= Place(u)}
    /\ UNCHANGED <<task, ready, drain, crashes>>

\* A task that was told leaves. Nothing says that it must.
Leave(t) ==
    /\ drain = "draining"
    /\ t \in told
    /\ Live(t)
    /\ task' = [task EXCEPT ![t] = "gone"]
    /\ UNCHANGED <<ready, drain, told, crashes>>

\* The deadline of a step passes: what is left of it is aborted.
Deadline ==
    /\ drain = "draining"
    /\ Bug # "forgets_deadline"
    /\ \E t \in told : Live(t)
    /\ task' = [t \in Tasks |-> IF t \in told /\ Live(t) THEN "gone" ELSE task[t]]
    /\ UNCHANGED <<ready, drain, told, crashes>>

Finish ==
    /\ drain = "draining"
    /\ \A t \in Tasks : ~Live(t)
    /\ drain' = "finished"
    /\ UNCHANGED <<task, ready, told, crashes>>

\* The end may last: without this step the checker would call it a deadlock.
Ended == drain = "finished" /\ UNCHANGED vars

Next ==
    \/ \E t \in Tasks : Start(t) \/ BootReady(t) \/ Crash(t) \/ Leave(t)
    \/ \E s \in Services : PublishLoss(s) \/ PublishReady(s)
    \/ DrainRequested \/ StopPhase \/ Deadline \/ Finish \/ Ended

\* The policy's own steps are taken; boots, crashes, exits and the request are not owed by anybody.
Fairness == WF_vars(StopPhase) /\ WF_vars(Deadline) /\ WF_vars(Finish)

Spec == Init /\ [][Next]_vars /\ Fairness

-----------------------------------------------------------------------------
TypeOK ==
    /\ task \in [Tasks -> TaskStates]
    /\ ready \in [Services -> BOOLEAN]
    /\ drain \in {"no", "draining", "finished"}
    /\ told \subseteq Tasks
    /\ crashes \in 0..MaxCrashes

NoDependentReadyFirst ==
    \A d \in Services : ready[d] => \A p \in DependsOn[d] : ready[p]

\* Whoever was told to stop was told after everything that must stop before it had left.
DependentsStopBeforeProviders ==
    \A t \in told, u \in Tasks :
        Live(u) => /\ PhaseOf[u] >= PhaseOf[t]
                   /\ ~ /\ PhaseOf[u] = PhaseOf[t]
                        /\ ServiceOf[u] # ServiceOf[t]
                        /\ ServiceOf[t] \in Needs(ServiceOf[u])

NothingRunsAfterTheEnd == drain = "finished" => \A t \in Tasks : ~Live(t)

NoStartWhileDraining ==
    [][drain # "no" => \A t \in Tasks : task'[t] = "starting" => task[t] = "starting"]_vars

EveryDrainEnds == (drain = "draining") ~> (drain = "finished")

=============================================================================
