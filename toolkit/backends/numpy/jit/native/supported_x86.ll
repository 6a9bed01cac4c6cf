; Whether this processor has what the code of a library is written for.

; cpuid and xgetbv as functions, of which there are no intrinsics:
; (i32 leaf, i32 part, ptr to four i32), and () with an i64 as result.
@cpuid = internal constant [31 x i8] c"\F3\0F\1E\FA\53\49\89\D0\89\F8\89\F1\0F\A2\41\89\00\41\89\58\04\41\89\48\08\41\89\50\0C\5B\C3", section ".text", align 16
@xgetbv = internal constant [17 x i8] c"\F3\0F\1E\FA\31\C9\0F\01\D0\48\C1\E2\20\48\09\D0\C3", section ".text", align 16

define internal i1 @supported() #0 {
entry:
  %found = alloca [4 x i32], align 16
  call void @cpuid(i32 0, i32 0, ptr %found)
  %last = load i32, ptr %found
  %knows = icmp uge i32 %last, 7
  br i1 %knows, label %one, label %no
one:
  call void @cpuid(i32 1, i32 0, ptr %found)
  %one.c.at = getelementptr i32, ptr %found, i64 2
  %one.c = load i32, ptr %one.c.at
  call void @cpuid(i32 7, i32 0, ptr %found)
  %seven.b.at = getelementptr i32, ptr %found, i64 1
  %seven.b = load i32, ptr %seven.b.at
  %seven.c = load i32, ptr %one.c.at
  %one.kept = and i32 %one.c, NEEDED_ONE_C
  %one.fine = icmp eq i32 %one.kept, NEEDED_ONE_C
  %b.kept = and i32 %seven.b, NEEDED_SEVEN_B
  %b.fine = icmp eq i32 %b.kept, NEEDED_SEVEN_B
  %c.kept = and i32 %seven.c, NEEDED_SEVEN_C
  %c.fine = icmp eq i32 %c.kept, NEEDED_SEVEN_C
  %some.fine = and i1 %one.fine, %b.fine
  %fine = and i1 %some.fine, %c.fine
  br i1 %fine, label %system, label %no
system:
  ; Whether the system saves the registers of vectors.
  %wanted = icmp ne i64 NEEDED_STATES, 0
  br i1 %wanted, label %states, label %yes
states:
  %saved = call i64 @xgetbv()
  %saved.kept = and i64 %saved, NEEDED_STATES
  %is.saved = icmp eq i64 %saved.kept, NEEDED_STATES
  br i1 %is.saved, label %yes, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

attributes #0 = { nounwind }
